"""Models that go wrong, each with what is to be said of it. All are small, and real torch modules and operators.

What is expected is derived by hand: which operator, in which module, by which rule. `op` is the operator as torch names it.
"""
import dataclasses
import math
import typing

import torch
from torch import nn
from torch.nn import functional as F

from locate_parts import B, H, INF, Fn, optimizer, par, program, randn, scores, seeded


@dataclasses.dataclass
class Fault:
    make: typing.Callable
    op: str = ""  # "" where no operator may be named
    node: str = ""  # the autograd node that runs it; "" in forward
    says: str = ""  # part of the sentence
    rule: str = ""
    cause: str = ""
    module: str = ""
    found: str = "operator"
    masks: bool = False  # -Inf is meant in this model
    rows: typing.Optional[list] = None  # the smallest batch
    anomaly: str = ""  # what torch's anomaly detection names; "" where it has nothing to say, or names what came later
    raises: str = ""  # the step itself raises
    wider: bool = False  # replay in FP32 as well
    persists: int = -1


FAULTS = {}


def fault(**expected):
    def add(make):
        FAULTS[make.__name__] = Fault(seeded(make), **expected)
        return make
    return add


# ---- attention ----------------------------------------------------------------------------------------------------------------


@fault(op="_softmax", rule="domain", cause="mask_full_row", module="attn", masks=True, rows=[1])
def multihead_attention_with_a_sample_of_padding():
    padding = torch.tensor([[False, False, True], [True, True, True], [False, True, True], [False, False, False]])
    return program(lambda m, x, padding: m.attn(x, x, x, key_padding_mask=padding)[0].square().mean(),
                   {"x": randn(4, 3, 8), "padding": padding}, rows=4, attn=nn.MultiheadAttention(8, 2, batch_first=True))


@fault(op="_softmax", rule="domain", cause="mask_full_row", masks=True, rows=[2])
def masked_fill_of_a_whole_row():
    keep = torch.ones(3, 4, 4, dtype=torch.bool).tril()
    keep[2, 3] = False

    def run(m, x, keep):
        s, v = scores(m, x)
        return (F.softmax(s.masked_fill(~keep, -INF), -1) @ v).mean()
    return program(run, {"x": randn(3, 4, 8), "keep": keep}, rows=3, qkv=nn.Linear(8, 24))


@fault(op="_softmax", rule="domain", cause="mask_full_row", masks=True)
def additive_mask_that_hides_the_diagonal():
    def run(m, x):
        s, v = scores(m, x)
        return (torch.softmax(s + m.mask, -1) @ v).mean()
    return program(run, {"x": randn(2, 4, 8)}, qkv=nn.Linear(8, 24), mask=torch.full((4, 4), -INF).triu())


@fault(op="_softmax", rule="domain", cause="mask_full_row", masks=True)
def in_place_masked_fill_of_a_whole_row():
    def run(m, x, hide):
        s, v = scores(m, x)
        s = s.clone()
        s.masked_fill_(hide, -INF)
        return (torch.softmax(s, -1) @ v).mean()
    return program(run, {"x": randn(2, 4, 8), "hide": torch.tensor([[[True] * 4] + [[False] * 4] * 3] * 2)}, qkv=nn.Linear(8, 24))


@fault(op="bmm", rule="range", cause="fp16_forward_overflow", wider=True, persists=0)
def scores_of_attention_beyond_fp16():
    def run(m, q, k):
        return torch.softmax(torch.bmm(q * m.w, k.transpose(1, 2)), -1).float().mean()
    return program(run, {"q": torch.full((2, 3, 16), 70.0, dtype=H), "k": torch.full((2, 3, 16), 70.0, dtype=H)},
                   w=lambda: par(1.0, dtype=H))


# ---- norms --------------------------------------------------------------------------------------------------------------------


@fault(op="native_layer_norm", rule="domain", cause="domain_math", module="norm", rows=[1])
def layer_norm_without_epsilon():
    x = randn(3, 4)
    x[1] = 2.0
    return program(lambda m, x: m.norm(x).square().mean(), {"x": x}, rows=3, norm=nn.LayerNorm(4, eps=0.0))


@fault(op="rsqrt", rule="domain", cause="domain_math", module="norm")
def rms_norm_of_a_row_of_zeros():
    norm = Fn(lambda m, x: x * torch.rsqrt(x.square().mean(-1, keepdim=True)) * m.w, w=par(1.0, 1.0, 1.0))
    return program(lambda m, x: m.norm(x).sum(), {"x": torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])}, norm=norm)


@fault(op="rsqrt", rule="rounding_upstream", cause="epsilon_underflow", module="norm", wider=True, persists=0)
def rms_norm_with_an_epsilon_that_fp16_does_not_have():
    norm = Fn(lambda m, x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-8) * m.w, w=par(1.0, 1.0, 1.0, dtype=H))
    return program(lambda m, x: m.norm(x).float().sum(), {"x": torch.tensor([[1.0, 2.0, 3.0], [0.0] * 3], dtype=H)}, norm=norm)


@fault(op="native_batch_norm", rule="domain", cause="domain_math", module="norm")
def batch_norm_of_a_channel_without_variance():
    norm = nn.BatchNorm1d(3, eps=0.0).eval()
    norm.running_var[1] = 0.0
    return program(lambda m, x: m.norm(x).square().mean(), {"x": randn(6, 3)}, norm=norm)


@fault(op="std", rule="domain", cause="domain_math")
def standard_deviation_of_one_element():
    return program(lambda m, x: (m.fc(x).std(dim=1)).sum(), {"x": randn(4, 3)}, fc=nn.Linear(3, 1))


@fault(op="var_mean", rule="domain", cause="domain_math")
def variance_and_mean_of_one_element():
    def run(m, x):
        var, mean = torch.var_mean(m.fc(x), dim=1)
        return mean.sum() + var.sum()
    return program(run, {"x": randn(4, 3)}, fc=nn.Linear(3, 1))


# ---- roots, logarithms, powers ------------------------------------------------------------------------------------------------


ROOT = "the slope of the square root at 0 is infinite"


@fault(op="div", rule="domain", cause="domain_math", node="SqrtBackward0", says=ROOT)
def distance_of_a_point_to_itself_in_backward():
    # Inf from the slope of the root; 0 * Inf only after it, which is what anomaly detection names: PowBackward0.
    return program(lambda m, x: (x - m.w).pow(2).sum().sqrt(), {"x": torch.tensor([1.0, 2.0])}, w=lambda: par(1.0, 2.0))


@fault(op="pow", rule="domain", cause="domain_math", node="PowBackward0",
       says="the slope of a power at 0, with an exponent below 1, is infinite")
def power_of_zero_in_backward():
    return program(lambda m, x: ((x * m.w) ** 0.5).sum(), {"x": torch.tensor([1.0, 0.0])}, w=lambda: par(1.0))


@fault(op="rsqrt", rule="domain", cause="domain_math", node="AcosBackward0", says="the slope of acos at 1 and -1 is infinite")
def angle_between_a_vector_and_itself_in_backward():
    return program(lambda m, x: torch.acos(x * m.w).sum(), {"x": torch.tensor([0.5, 1.0])}, w=lambda: par(1.0))


@fault(op="rsqrt", rule="domain", cause="domain_math", node="AsinBackward0", says="the slope of asin at 1 and -1 is infinite")
def arcus_sinus_of_one_in_backward():
    return program(lambda m, x: torch.asin(x * m.w).sum(), {"x": torch.tensor([0.5, -1.0])}, w=lambda: par(1.0))


@fault(op="div", rule="domain", cause="domain_math", node="HypotBackward0", says="the slope of hypot at (0, 0) is infinite")
def distance_from_the_origin_in_backward():
    return program(lambda m, x: torch.hypot(x * m.w, x * m.v).sum(), {"x": torch.tensor([1.0, 0.0])}, w=lambda: par(1.0),
                   v=lambda: par(2.0))


@fault(op="div_", rule="domain", cause="domain_math", node="LinalgEighBackward0",
       says="the slope of the eigenvectors at eigenvalues that are equal is infinite")
def eigenvectors_of_equal_eigenvalues_in_backward():
    return program(lambda m, x: (torch.linalg.eigh(x * m.w)[1] * torch.tensor([[1.0, 2.0], [3.0, 5.0]])).sum(),
                   {"x": torch.eye(2)}, w=lambda: par(1.0))


@fault(op="div", rule="domain", cause="domain_math", node="SqrtBackward0", anomaly="SqrtBackward0", says=ROOT)
def where_keeps_the_value_and_not_the_gradient():
    return program(lambda m, x: torch.where(x * m.w > 0, (x * m.w).sqrt(), torch.zeros(3)).sum(),
                   {"x": torch.tensor([1.0, 0.0, 4.0])},
                   w=lambda: par(1.0, 1.0, 1.0))


@fault(op="sqrt", rule="domain", cause="domain_math", anomaly="SqrtBackward0")
def where_swallows_what_backward_then_reads():
    # sqrt(-1) is NaN in forward already, is not taken by where, and is read again by its own backward.
    return program(lambda m, x: torch.where(x * m.w > 0, (x * m.w).sqrt(), torch.zeros(3)).sum(),
                   {"x": torch.tensor([1.0, -1.0, 4.0])},
                   w=lambda: par(1.0, 1.0, 1.0))


@fault(op="log1p", rule="rounding_upstream", cause="domain_math", wider=True, persists=0)
def log1p_behind_a_clamp_that_bf16_rounds_to_one():
    return program(lambda m, p: torch.log1p(-torch.clamp(p * m.w, max=1 - 1e-6)).float().sum(),
                   {"p": torch.tensor([0.5, 1.0, 0.25], dtype=B)}, w=lambda: par(1.0, dtype=B))


@fault(op="log", rule="rounding_upstream", cause="domain_math")
def logarithm_of_a_sigmoid_that_became_zero():
    return program(lambda m, x: torch.log(torch.sigmoid(x * m.w)).sum(), {"x": torch.tensor([1.0, -200.0])}, w=lambda: par(1.0))


@fault(op="log", rule="domain", cause="domain_math", module="loss")
def logarithm_of_zero_in_the_loss():
    return program(lambda m, p: m.loss(p * m.w),
                   {"p": torch.tensor([0.5, 0.0])}, w=lambda: par(1.0), loss=Fn(lambda m, p: -p.log().mean()))


@fault(op="pow", rule="domain", cause="domain_math")
def power_of_a_negative():
    return program(lambda m, x: ((x * m.w) ** 0.5).sum(), {"x": torch.tensor([1.0, -2.0])}, w=lambda: par(1.0))


@fault(op="rsqrt", rule="rounding_upstream", cause="domain_math")
def difference_that_cancels():
    # (1 + 2^-13)^2 is 1 + 2^-12 in FP32, and 2^-26 more in FP64.
    return program(lambda m, x: ((x * m.w) * x - (1 + 2.0 ** -12)).rsqrt().sum(),
                   {"x": torch.tensor([2.0, 1 + 2.0 ** -13])}, w=lambda: par(1.0))


@fault(op="acos", rule="domain", cause="domain_math")
def angle_of_two():
    return program(lambda m, x: torch.acos(x * m.w).sum(), {"x": torch.tensor([0.5, 2.0])}, w=lambda: par(1.0))


# ---- range --------------------------------------------------------------------------------------------------------------------


def linear(value, n, bias=True, dtype=H):
    fc = nn.Linear(n, n, bias=bias)
    nn.init.constant_(fc.weight, value)
    return fc.to(dtype)


@fault(op="addmm", rule="range", cause="fp16_forward_overflow", module="fc", rows=[2], wider=True, persists=0)
def linear_beyond_fp16():
    x = torch.ones(4, 64, dtype=H)
    x[2] = 100.0
    return program(lambda m, x: m.fc(x).float().mean(), {"x": x}, rows=4, fc=linear(20.0, 64))


@fault(op="_to_copy", rule="range", cause="fp16_backward_overflow", node="ToCopyBackward0")
def scaled_loss_beyond_fp16_in_backward():
    return program(lambda m, x: m.fc(x).float().sum() * 131072.0, {"x": torch.ones(2, 4, dtype=H)}, fc=linear(0.5, 4))


@fault(op="mm", rule="range", cause="fp16_backward_overflow", module="fc", node="AddmmBackward0", wider=True, persists=0)
def gradient_of_a_weight_beyond_fp16():
    return program(lambda m, x: m.fc(x).float().sum() * 64.0, {"x": torch.full((64, 4), 100.0, dtype=H)}, fc=linear(0.01, 4))


@fault(op="exp", rule="range", cause="fp16_forward_overflow", wider=True, persists=0)
def softmax_by_hand_in_fp16():
    def run(m, x):
        e = torch.exp(x * m.w)
        return (e / e.sum(-1, keepdim=True)).float().mean()
    return program(run, {"x": torch.tensor([[1.0, 12.0], [2.0, 3.0]], dtype=H)}, w=lambda: par(1.0, dtype=H))


@fault(op="sum", rule="range", cause="fp16_forward_overflow", wider=True, persists=0)
def sum_of_a_softmax_by_hand_in_fp16():
    def run(m, x):
        e = torch.exp(x * m.w)
        return (1.0 / e.sum(-1)).float().mean() + torch.log(e.sum(-1)).float().mean()
    return program(run, {"x": torch.full((2, 3), 11.0, dtype=H)}, w=lambda: par(1.0, dtype=H))


@fault(op="exp", rule="range", cause="overflow")
def exponential_beyond_fp32():
    return program(lambda m, x: torch.exp(m.fc(x) * 100).sum(), {"x": torch.ones(2, 4)}, fc=linear(0.5, 4, dtype=torch.float32))


@fault(op="cosh", rule="range", cause="overflow")
def operator_that_is_not_known():
    return program(lambda m, x: torch.cosh(x * m.w).sum(), {"x": torch.tensor([1.0, 100.0])}, w=lambda: par(1.0))


@fault(op="add_", rule="range", cause="fp16_forward_overflow", module="block")
def residual_added_in_place_in_fp16():
    block = Fn(lambda m, x: (x * m.w).add_(x), w=par(1.0, dtype=H))
    return program(lambda m, x: m.block(x).float().mean(), {"x": torch.tensor([3.0, 40000.0], dtype=H)}, block=block)


@fault(op="add", rule="range", cause="fp16_backward_overflow", module="wte")
def tied_weights_whose_gradients_do_not_fit_together():
    def run(m, tokens):
        return ((m.wte(tokens) * 20000.0).sum() + (m.wte.weight.sum() * 40000.0)).float()
    return program(run, {"tokens": torch.tensor([1, 1])},
                   wte=nn.Embedding.from_pretrained(torch.zeros(3, 4, dtype=H), freeze=False))


# ---- losses -------------------------------------------------------------------------------------------------------------------


@fault(op="nll_loss_forward", rule="domain", cause="label_all_ignored", module="loss")
def cross_entropy_without_a_label():
    return program(lambda m, x, labels: m.loss(m.fc(x), labels), {"x": randn(3, 4), "labels": torch.full((3,), -100)},
                   fc=nn.Linear(4, 5), loss=nn.CrossEntropyLoss())


@fault(op="div", rule="domain", cause="zero_denominator", module="loss")
def masked_mean_over_nothing():
    return program(lambda m, x, weights: m.loss(m.fc(x).square().mean(-1), weights), {"x": randn(3, 4), "weights": torch.zeros(3)},
                   fc=nn.Linear(4, 5), loss=Fn(lambda m, x, w: (x * w).sum() / w.sum()))


@fault(op="mean", rule="domain", cause="zero_denominator")
def mean_of_no_elements():
    return program(lambda m, x: (m.fc(x)[x.sum(-1) > 1e9]).mean(), {"x": randn(3, 4)}, fc=nn.Linear(4, 5))


@fault(op="nll_loss_forward", rule="domain", cause="domain_math", module="loss", masks=True)
def probability_of_zero_in_the_loss():
    # log_softmax is finite; the class of the label was masked with -Inf on purpose, and then asked for.
    def run(m, x, labels):
        return m.loss(torch.log_softmax(m.fc(x), -1).masked_fill(m.banned, -INF), labels)
    return program(run, {"x": randn(3, 4), "labels": torch.tensor([0, 4, 1])}, fc=nn.Linear(4, 5), loss=nn.NLLLoss(),
                   banned=torch.tensor([False, False, False, False, True]))


# ---- entries ------------------------------------------------------------------------------------------------------------------


@fault(found="entry", rule="batch", cause="input_nonfinite", rows=[1])
def nan_in_the_batch():
    x = randn(3, 4)
    x[1, 2] = math.nan
    return program(lambda m, x: m.fc(x).square().mean(), {"x": x}, rows=3, fc=nn.Linear(4, 5))


@fault(found="entry", rule="state", cause="state_bad")
def nan_in_a_parameter():
    fc = linear(0.1, 4, dtype=torch.float32)
    with torch.no_grad():
        fc.weight[1, 1] = math.nan
    return program(lambda m, x: m.fc(x).square().mean(), {"x": randn(3, 4)}, fc=fc)


@fault(found="entry", rule="state", cause="scale_runaway")
def loss_scale_that_is_infinite():
    made = program(lambda m, x: m.fc(x).square().mean() * m.scale, {"x": randn(3, 4)}, fc=nn.Linear(4, 5))
    made.model.scale = made.scalars["loss_scale"] = torch.tensor(INF)
    return made


@fault(found="undecided", raises="index out of range")
def token_that_the_embedding_refuses():
    return program(lambda m, tokens: m.wte(tokens).square().mean(), {"tokens": torch.tensor([1, 9])}, wte=nn.Embedding(4, 3))


# ---- swallowed, and then a real one -------------------------------------------------------------------------------------------


@fault(op="log", rule="domain", cause="domain_math", module="loss")
def nan_to_num_and_then_a_logarithm_of_zero():
    def run(m, x, y):
        return m.loss(y * m.w) + torch.nan_to_num(torch.sqrt(x)).sum()
    return program(run, {"x": torch.tensor([-1.0, 0.0]), "y": torch.tensor([0.0, 1.0])}, w=lambda: par(1.0),
                   loss=Fn(lambda m, y: y.log().sum()))


@fault(op="exp", rule="range", cause="overflow")
def where_and_then_an_exponential():
    def run(m, x):
        safe = torch.where(x > 0, torch.log(x), torch.zeros(2))
        return torch.exp((safe + 100.0) * m.w).sum()
    return program(run, {"x": torch.tensor([-1.0, 2.0])}, w=lambda: par(1.0))


@fault(op="div", rule="domain", cause="domain_math")
def masked_fill_of_the_nan_and_then_zero_by_zero():
    def run(m, x):
        y = x / x
        y = y.masked_fill(torch.isnan(y), 0.0)
        x = (x + y * 0) * m.w
        return (x / (x * 2)).sum()
    return program(run, {"x": torch.tensor([0.0, 2.0])}, w=lambda: par(1.0))


@fault(op="div", rule="domain", cause="domain_math")
def in_place_repair_and_then_one_by_zero():
    def run(m, x):
        y = x.log()
        y[torch.isinf(y)] = 0.0
        y.mul_(0.0)
        return (m.w / (x + y)).sum()
    return program(run, {"x": torch.tensor([0.0, 1.0])}, w=lambda: par(1.0))


# ---- memory -------------------------------------------------------------------------------------------------------------------


@fault(op="log", rule="domain", cause="domain_math")
def copy_into_a_row_of_a_buffer():
    def run(m, x):
        rows = torch.zeros(3, 2)
        rows[1].copy_((x * m.w).log())
        rows[2].copy_(x)
        return rows.sum()
    return program(run, {"x": torch.tensor([0.0, 1.0])}, w=lambda: par(1.0))


@fault(op="mul_", rule="range", cause="overflow")
def one_chunk_grows_in_place_and_the_whole_is_read():
    def run(m, x):
        y = x * m.w
        rows = y.view(2, 2)
        rows[1].mul_(1e38)
        return rows[0].sum() + y.square().sum() * 0.0
    return program(run, {"x": torch.tensor([1.0, 2.0, 3.0, 40.0])}, w=lambda: par(1.0))


@fault(op="sqrt", rule="domain", cause="domain_math")
def bad_half_is_written_over_and_the_other_is_not():
    # Two bad values under one memory: the first is written over, the second is what counts.
    def run(m, x):
        y = torch.empty(4)
        y[:2] = torch.log(x[:2] - 5.0)
        y[2:] = torch.sqrt(x[2:] * m.w)
        y[:2] = x[:2]
        return y.sum()
    return program(run, {"x": torch.tensor([1.0, 2.0, -3.0, 4.0])}, w=lambda: par(1.0))


@fault(op="log", rule="domain", cause="domain_math")
def transposed_and_reshaped_on_the_way():
    def run(m, x):
        y = (x * m.w).log().t().reshape(-1).unfold(0, 2, 2).flip(0)
        return (y @ torch.ones(2, 1)).sum()
    return program(run, {"x": torch.tensor([[1.0, 0.0], [2.0, 3.0]])}, w=lambda: par(1.0))


@fault(op="empty", rule="none", cause="uninitialised_memory")
def memory_that_nobody_wrote():
    def run(m, x):
        rows = torch.empty(3, 2)
        rows[0] = x * m.w
        rows[1] = x
        return rows.sum()
    return program(run, {"x": torch.tensor([1.0, 2.0])}, w=lambda: par(1.0))


# ---- the rest of the operators ------------------------------------------------------------------------------------------------


@fault(op="div", rule="domain", cause="domain_math")
def index_by_argmax_and_divide():
    def run(m, x):
        best = x.argmax(-1, keepdim=True)
        top, order = (x * m.w).topk(2, -1)
        return (top[:, 0] / (x.gather(-1, best)[:, 0] - top[:, 0]) + order.sum()).sum()
    return program(run, {"x": torch.tensor([[1.0, 3.0], [5.0, 2.0]])}, w=lambda: par(1.0))


@fault(op="div", rule="domain", cause="domain_math")
def dropout_that_drops_a_whole_row():
    def run(m, x):
        y = F.dropout(x * m.w, 0.9)
        return (y / y.norm(dim=-1, keepdim=True)).sum()
    return program(run, {"x": torch.ones(4, 3)}, w=lambda: par(1.0))


@fault(op="div", rule="none", cause="unknown")
def complex_division_by_zero():
    def run(m, x):
        z = torch.complex(x * m.w, torch.ones(2))
        return (z / (z - z)).real.sum()
    return program(run, {"x": torch.tensor([1.0, 2.0])}, w=lambda: par(1.0))


@fault(op="log", rule="domain", cause="domain_math", found="set")
def two_that_do_not_depend_on_each_other():
    return program(lambda m, x: (x * m.w).log().sum() + (m.w - 5).sqrt().sum(), {"x": torch.tensor([0.0, 1.0])}, w=lambda: par(1.0))


@fault(op="div", rule="domain", cause="domain_math", module="block", anomaly="SqrtBackward0")
def root_in_a_block_that_is_computed_again():
    from torch.utils.checkpoint import checkpoint
    block = Fn(lambda m, x: torch.where(x > 0, (x * m.w).sqrt(), x), w=par(1.0))
    return program(lambda m, x: checkpoint(m.block, x, use_reentrant=False).sum(), {"x": torch.tensor([0.0, 1.0])}, block=block)


# ---- updates ------------------------------------------------------------------------------------------------------------------


def adam_in_fp16(model):
    for p in model.parameters():
        m, v = torch.zeros_like(p), torch.zeros_like(p)
        m.mul_(0.9).add_(p.grad, alpha=0.1)
        v.mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
        p.addcdiv_(m, v.sqrt().add_(1e-8), value=-1e-3)


@fault(op="addcdiv_", rule="rounding_upstream", cause="epsilon_underflow", module="optimizer")
def adam_by_hand_in_fp16():
    return program(lambda m, x: (m.w * x).float().sum(),
                   {"x": torch.tensor([1.0, 0.0], dtype=H)}, adam_in_fp16, w=lambda: par(1.0, 2.0, dtype=H))


@fault(op="addcdiv_", rule="domain", cause="epsilon_underflow", module="optimizer")
def adam_without_epsilon():
    return program(lambda m, x: (m.w * x).sum(),
                   {"x": torch.tensor([1.0, 0.0])}, optimizer(torch.optim.Adam, eps=0.0), w=lambda: par(1.0, 2.0))


@fault(op="add_", rule="domain", cause="lr_instability", module="optimizer")
def learning_rate_that_is_infinite():
    return program(lambda m, x: (m.w * x).sum(),
                   {"x": torch.tensor([1.0, 0.0])}, optimizer(torch.optim.SGD, lr=INF), w=lambda: par(1.0, 2.0))


def clip_by_item(model):
    # A norm that is read as a number: 0 / 0, which goes on as a factor.
    for p in model.parameters():
        norm = p.grad.norm()
        factor = (norm / norm).item()
        p.add_(p.grad * factor, alpha=-0.1)


@fault(op="div", rule="domain", cause="domain_math", module="optimizer")
def clipping_by_a_number_of_the_host():
    return program(lambda m, x: (m.w * x).sum(), {"x": torch.zeros(2)}, clip_by_item, w=lambda: par(1.0, 2.0))

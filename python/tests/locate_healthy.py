"""Models in which nothing is wrong, though much in them is not finite. Whoever is accused in one is accused wrongly."""
import torch
from torch import nn
from torch.nn import functional as F

from locate_parts import B, INF, Fn, optimizer, par, program, randn, scores, seeded
from locate_program import Program

HEALTHY = {}


def healthy(make):
    HEALTHY[make.__name__] = seeded(make)
    return make


@healthy
def causal_attention():
    def run(m, x):
        s, v = scores(m, x)
        return (torch.softmax(s + m.mask, -1) @ v).mean()
    return program(run, {"x": randn(2, 4, 8)}, qkv=nn.Linear(8, 24), mask=torch.full((4, 4), -INF).triu(1))


@healthy
def multihead_attention_with_padding():
    padding = torch.tensor([[False, False, True], [False, True, True]])
    return program(lambda m, x, padding: m.attn(x, x, x, key_padding_mask=padding)[0].square().mean(),
                   {"x": randn(2, 3, 8), "padding": padding}, attn=nn.MultiheadAttention(8, 2, batch_first=True))


@healthy
def safe_softmax_of_a_whole_masked_row():
    keep = torch.ones(2, 1, 4, 4, dtype=torch.bool).tril()
    keep[0, 0, 1] = False

    def run(m, x, keep):
        q, k, v = (t.unsqueeze(1) for t in m.qkv(x).chunk(3, -1))
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return F.scaled_dot_product_attention(q, k, v, keep).mean()
    return program(run, {"x": randn(2, 4, 8), "keep": keep}, qkv=nn.Linear(8, 24))


@healthy
def transformer_block():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
    return program(lambda m, x: m.layer(x, src_mask=m.mask).square().mean(), {"x": randn(2, 4, 8)}, optimizer(torch.optim.AdamW),
                   layer=layer, mask=torch.full((4, 4), -INF).triu(1))


@healthy
def norm_of_zero():
    return program(lambda m, x: (x * m.w).norm(), {"x": torch.zeros(3)}, w=lambda: par(1.0))


@healthy
def where_on_both_sides():
    def run(m, x):
        good = x > 0
        return torch.where(good, torch.where(good, x * m.w, torch.ones(3)).sqrt(), torch.zeros(3)).sum()
    return program(run, {"x": torch.tensor([1.0, -1.0, 0.0])}, w=lambda: par(1.0))


@healthy
def nan_that_is_swallowed():
    return program(lambda m, x: (torch.nan_to_num(torch.log(x - 5.0)) * m.w).sum(),
                   {"x": torch.tensor([1.0, 6.0])}, w=lambda: par(1.0))


@healthy
def padding_of_infinities_that_is_cut_off():
    return program(lambda m, x: (x[:2] * m.w).sum(), {"x": torch.tensor([1.0, 2.0, INF])}, w=lambda: par(1.0))


@healthy
def convolution_and_batch_norm():
    net = nn.Sequential(nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3), nn.ReLU(inplace=True), nn.MaxPool1d(2))
    return program(lambda m, x: m.net(x).square().mean(),
                   {"x": randn(2, 2, 8)}, optimizer(torch.optim.SGD, lr=0.1, momentum=0.9), net=net)


@healthy
def recurrent():
    return program(lambda m, x: m.rnn(x)[0].square().mean(), {"x": randn(2, 5, 3)}, rnn=nn.GRU(3, 4, batch_first=True))


@healthy
def autocast_to_bfloat16():
    def run(m, x):
        with torch.autocast("cpu", dtype=B):
            return m.net(x).float().square().mean()
    return program(run, {"x": randn(2, 4)}, net=nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 1)))


@healthy
def banned_tokens_in_the_logits():
    def run(m, tokens):
        logits = m.wte(tokens) @ m.wte.weight.t()
        logits = logits.masked_fill(m.banned, -INF)
        return F.cross_entropy(logits, tokens)
    return program(run,
                   {"tokens": torch.tensor([1, 2, 0])}, wte=nn.Embedding(4, 3), banned=torch.tensor([False, False, False, True]))


@healthy
def logsumexp_over_masks():
    return program(lambda m, x: torch.logsumexp((x * m.w).masked_fill(x > 2, -INF), -1).sum(),
                   {"x": torch.tensor([[1.0, 3.0], [2.0, 1.0]])},
                   w=lambda: par(1.0))


def random_transformer(name, **size):
    """A model of the package transformers with random weights; None where the package is not there."""
    try:
        import transformers
    except ImportError:
        return None
    torch.manual_seed(5)
    model = getattr(transformers, name + "LMHeadModel" if name == "GPT2" else name + "ForCausalLM")(
        getattr(transformers, name + "Config")(**size, attn_implementation="eager"))
    tokens = torch.randint(0, 16, (2, 6), generator=torch.Generator().manual_seed(1))
    attention = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1]])
    whole = Fn(lambda m, tokens, attention: m.lm(input_ids=tokens, attention_mask=attention, labels=tokens).loss, lm=model)
    return Program(whole, {"tokens": tokens, "attention": attention})


def gpt2():
    return random_transformer("GPT2", vocab_size=16, n_positions=8, n_embd=8, n_layer=2, n_head=2)


def llama():
    return random_transformer("Llama", vocab_size=16, hidden_size=8, intermediate_size=16, num_hidden_layers=2,
                              num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=8)

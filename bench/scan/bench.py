"""What a scan costs, against peers and roofs. Run it with bench/scan/run.sh [--mb N] [--rounds N] [ROW...].

Rows: verdict, l2, norm, unscale, statistics, threads. Every figure is measured beside its peer and beside the fastest plain read of the
same buffer, in turn, in one process: a round times each once, ratios are taken within a round, and the median over the rounds is
printed. Buffers are written before the first round, so that no page is fresh. Peers (torch, numpy) run at their best settings: as many
threads as ours where ours has more than one, and the foreach forms.
A figure that misses what we set out to reach is marked.
"""
import argparse
import ctypes
import statistics
import sys
import time

try:
    import numpy
    import torch
except ImportError:
    sys.exit("bench/scan: this Python has no torch and numpy; name one that has in FIRSTBAD_PYTHON")

F64, F32, F16, BF16, E4M3, E5M2, E4M3FNUZ = 1, 2, 3, 4, 5, 6, 7


class View(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("count", ctypes.c_uint64), ("dtype", ctypes.c_int32), ("site", ctypes.c_uint32),
                ("layout", ctypes.c_void_p), ("device", ctypes.c_int32), ("flags", ctypes.c_uint32), ("stream", ctypes.c_void_p),
                ("reserved", ctypes.c_uint64 * 2)]


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("threads", ctypes.c_int32), ("histogram", ctypes.c_int32), ("reserved", ctypes.c_int32)]


class ScanResult(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("dtype", ctypes.c_int32), ("counts", ctypes.c_uint64 * 9), ("kind", ctypes.c_int32 * 2),
                ("reals", ctypes.c_double * 3), ("exponent", ctypes.c_int32 * 2)]


class Histogram(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("mode", ctypes.c_int32), ("scale", ctypes.c_uint64), ("counted", ctypes.c_uint64),
                ("bins", ctypes.c_uint64 * 256)]


class Measure(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("dtype", ctypes.c_int32), ("elements", ctypes.c_uint64), ("bad", ctypes.c_uint64),
                ("first", ctypes.c_uint64 * 3), ("kind", ctypes.c_int32 * 2), ("source", ctypes.c_uint64 * 3), ("abs_max", ctypes.c_double),
                ("sum_sq", ctypes.c_double), ("exponent", ctypes.c_int32 * 2)]


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int32), ("errno", ctypes.c_int32), ("offset", ctypes.c_uint64), ("message", ctypes.c_char * 1024)]


def sized(kind, **fields):
    return kind(size=ctypes.sizeof(kind), **fields)


class Library:
    def __init__(self, path):
        self.so = ctypes.CDLL(path)
        self.so.fb_scan_kernel.restype = ctypes.c_char_p
        self.so.fb_measure_norm.restype = ctypes.c_double
        self.so.roof_read.restype = self.so.roof_read_threads.restype = ctypes.c_uint64
        for name in ("roof_read", "roof_read_threads"):
            getattr(self.so, name).argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int] + [ctypes.c_int] * (name != "roof_read")
        self.so.roof_multiply.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_float, ctypes.c_int]
        self.so.fb_measure.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_double] + [ctypes.c_void_p] * 4
        self.so.fb_unscale_many.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_size_t, ctypes.c_double] + [ctypes.c_void_p] * 4
        self.error = Error()
        self.wide = self.so.roof_wide()

    def check(self, status):
        if status != 0:
            sys.exit(f"bench/scan: {self.error.message.decode()}")

    def use(self, kernel):
        self.check(self.so.fb_scan_kernel_use(kernel, ctypes.byref(self.error)))

    def first(self, view):
        options, index = sized(Options, threads=1), ctypes.c_uint64()
        self.check(self.so.fb_scan_first_with(ctypes.byref(view), ctypes.byref(options), ctypes.byref(index), ctypes.byref(self.error)))
        return index.value

    def scan(self, view, threads, mode):
        options, result, histogram = sized(Options, threads=threads, histogram=mode), sized(ScanResult), sized(Histogram)
        self.check(self.so.fb_scan_with(ctypes.byref(view), ctypes.byref(options), ctypes.byref(result),
                                        ctypes.byref(histogram) if mode else None, ctypes.byref(self.error)))
        return result

    def measure(self, views, inv_scale, threads):
        options, total = sized(Options, threads=threads), sized(Measure)
        self.check(self.so.fb_measure(views, len(views), inv_scale, ctypes.addressof(options), None, ctypes.addressof(total),
                                      ctypes.addressof(self.error)))
        return total

    def unscale(self, source, target, inv_scale, threads):
        options, total = sized(Options, threads=threads), sized(Measure)
        self.check(self.so.fb_unscale_many(source, target, len(source), inv_scale, ctypes.addressof(options), None,
                                           ctypes.addressof(total), ctypes.addressof(self.error)))
        return total

    def read(self, tensor, threads=1):
        return self.so.roof_read_threads(tensor.data_ptr(), tensor.numel() * tensor.element_size(), self.wide, threads)


def view_of(tensor, dtype):
    return View(data=tensor.data_ptr(), count=tensor.numel(), dtype=dtype, device=-1)


def views_of(tensors, dtype):
    return (View * len(tensors))(*[view_of(t, dtype) for t in tensors])


def rounds(count, clock=time.perf_counter, **actions):
    """Seconds of each action, round by round, in turn. What runs on one thread is timed by that thread's own clock, time.thread_time, which
    stands still while another program has the processor."""
    times = {name: [] for name in actions}
    for name, action in actions.items():
        action()
    for _ in range(count):
        for name, action in actions.items():
            began = clock()
            action()
            times[name].append(clock() - began)
    return times


def ratio(times, over, under):
    return statistics.median(a / b for a, b in zip(times[over], times[under]))


missed = []


def row(name, seconds, gigabytes, **ratios):
    """ratios: label=(value, wanted)."""
    text = f"{name:<34}{seconds * 1e3:9.2f} ms {gigabytes / seconds:7.1f} GB/s"
    for label, (value, wanted) in ratios.items():
        miss = wanted is not None and not value >= wanted
        if miss:
            missed.append(f"{name}: {label} {value:.2f}, wanted {wanted}")
        text += f"   {label.replace('_', ' ')} {value:6.2f}{'' if wanted is None else f' (>= {wanted:g}' + (', missed)' if miss else ')')}"
    print(text, flush=True)


def fill(elements, dtype):
    """Numbers like gradients, in torch's own type; the 8-bit formats as finite codes."""
    if dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        out = torch.empty(elements, dtype=dtype)
        step = 1 << 24
        for at in range(0, elements, step):
            out[at:at + step] = torch.randn(min(step, elements - at)).mul_(0.01).to(dtype)
        return out
    return torch.randint(0, 0x78, (elements,), dtype=torch.uint8)


def verdict(lib, mb, count):
    torch.set_num_threads(1)
    wanted = {F32: 12, F16: 30, BF16: 30}
    for name, dtype, torch_dtype in (("f32", F32, torch.float32), ("f16", F16, torch.float16), ("bf16", BF16, torch.bfloat16),
                                     ("f64", F64, torch.float64), ("f8_e4m3fn", E4M3, torch.uint8), ("f8_e5m2", E5M2, torch.uint8),
                                     ("f8_e4m3fnuz", E4M3FNUZ, torch.uint8)):
        size = torch.empty(0, dtype=torch_dtype).element_size()
        x = fill(mb * 1000 * 1000 // size, torch_dtype)
        view = view_of(x, dtype)
        actions = {"ours": lambda: lib.first(view), "roof": lambda: lib.read(x)}
        if torch_dtype != torch.uint8:
            actions["torch"] = lambda: bool(torch.isfinite(x).all())
        if torch_dtype in (torch.float32, torch.float16, torch.float64):
            array = x.numpy()
            actions["numpy"] = lambda: bool(numpy.isfinite(array).all())
        times = rounds(count, time.thread_time, **actions)
        ratios = {"of_read": (ratio(times, "roof", "ours"), 0.9)}
        if "torch" in times:
            ratios["x_torch"] = (ratio(times, "torch", "ours"), wanted.get(dtype))
        if "numpy" in times:
            ratios["x_numpy"] = (ratio(times, "numpy", "ours"), None)
        row(f"verdict {name}, 1 thread", statistics.median(times["ours"]), mb / 1e3, **ratios)


def l2(lib, mb, count):
    for kernel, wanted in ((b"avx512", 0.80), (b"avx2", 0.75)):
        if kernel == b"avx512" and not lib.wide:
            continue
        lib.use(kernel)
        for name, dtype, torch_dtype in (("f32", F32, torch.float32), ("bf16", BF16, torch.bfloat16), ("f8_e4m3fn", E4M3, torch.uint8)):
            bytes_ = 1 << 20
            x = fill(bytes_ // torch.empty(0, dtype=torch_dtype).element_size(), torch_dtype)
            view = view_of(x, dtype)
            index = ctypes.c_uint64()
            call, v, i = lib.so.fb_scan_first, ctypes.byref(view), ctypes.byref(index)
            read, p, wide = lib.so.roof_read, x.data_ptr(), lib.wide if kernel == b"avx512" else 0

            def ours():
                for _ in range(100):
                    call(v, i, None)

            def roof():
                for _ in range(100):
                    read(p, bytes_, wide)
            times = rounds(count * 3, time.thread_time, ours=ours, roof=roof)
            row(f"verdict {name}, 1 MiB in L2, {kernel.decode()}", statistics.median(times["ours"]), bytes_ * 100 / 1e9,
                of_read=(ratio(times, "roof", "ours"), wanted))
    lib.use(None)


def gradients(mb, torch_dtype):
    """About 300 tensors of one allocation, as a model of a few hundred layers has them."""
    size = torch.empty(0, dtype=torch_dtype).element_size()
    whole = fill(mb * 1000 * 1000 // size // 300 * 300, torch_dtype)
    return whole, list(whole.chunk(300))


def norm(lib, mb, count):
    for threads in (1, 0):
        torch.set_num_threads(threads or lib.so.roof_processors())
        for name, dtype, torch_dtype in (("f32", F32, torch.float32), ("bf16", BF16, torch.bfloat16), ("f16", F16, torch.float16)):
            whole, parts = gradients(mb, torch_dtype)
            views = views_of(parts, dtype)
            width = torch.get_num_threads()
            times = rounds(count, time.thread_time if width == 1 else time.perf_counter, ours=lambda: lib.measure(views, 1.0, threads),
                           roof=lambda: lib.read(whole, width), torch=lambda: torch._foreach_norm(parts))
            total = lib.measure(views, 1.0, threads)
            exact = sum(float(p.double().pow(2).sum()) for p in parts) ** 0.5
            error = abs(lib.so.fb_measure_norm(ctypes.byref(total)) / exact - 1)
            row(f"verdict + norm {name}, {width} thread{'s' * (width > 1)}", statistics.median(times["ours"]), whole.numel() * whole.element_size() / 1e9,
                of_read=(ratio(times, "roof", "ours"), 0.9), x_torch=(ratio(times, "torch", "ours"), None))
            if not error <= 1e-7 or total.bad:
                missed.append(f"norm {name}: relative error {error:.2g}, {total.bad} false alarms")


def unscale(lib, mb, count):
    width = lib.so.roof_processors()
    torch.set_num_threads(width)
    wanted = {F32: 1.6, BF16: 3.0, F16: 80.0}
    for name, dtype, torch_dtype in (("f32", F32, torch.float32), ("bf16", BF16, torch.bfloat16), ("f16", F16, torch.float16)):
        whole, parts = gradients(mb, torch_dtype)
        parameters = [torch.nn.Parameter(torch.empty_like(p), requires_grad=True) for p in parts]
        for parameter, part in zip(parameters, parts):
            parameter.grad = part
        source = views_of(parts, dtype)
        stored = torch.zeros(whole.numel(), dtype=torch.float32) if dtype == F16 else whole
        target = views_of(list(stored.chunk(300)), F32) if dtype == F16 else None
        inverse = 1.0

        def ours():
            lib.unscale(source, target, inverse, 0)
            lib.unscale(target if target is not None else source, None, 1.0, 0)  # the clip: multiplies once more, and checks at no cost

        def ours_no_write():
            lib.measure(source, inverse, 0)

        def lean():
            torch._foreach_mul_(parts, inverse)
            torch.nn.utils.clip_grad_norm_(parameters, 1e30, foreach=True)

        def checked():
            torch._foreach_mul_(parts, inverse)
            all(bool(torch.isfinite(p).all()) for p in parts)
            torch.nn.utils.clip_grad_norm_(parameters, 1e30, foreach=True)
        actions = {"ours": ours, "no_write": ours_no_write, "lean": lean}
        if dtype != F16:
            actions["checked"] = checked
        times = rounds(count if dtype != F16 else 7, **actions)
        ratios = {"x_lean": (ratio(times, "lean", "ours"), wanted[dtype])}
        if "checked" in times:
            ratios["x_with_isfinite"] = (ratio(times, "checked", "ours"), None)
        gigabytes = whole.numel() * whole.element_size() / 1e9
        row(f"unscale + norm, clip {name}", statistics.median(times["ours"]), gigabytes, **ratios)
        row(f"no write, coefficient {name}", statistics.median(times["no_write"]), gigabytes, x_lean=(ratio(times, "lean", "no_write"), 4.0))


def six_calls(x):
    finite = torch.isfinite(x)
    return (finite.all(), torch.isnan(x).sum(), torch.isinf(x).sum(), (x == 0).sum(), x.abs().max(), torch.linalg.vector_norm(x))


def statistics_row(lib, mb, count):
    torch.set_num_threads(1)
    for name, dtype, torch_dtype in (("f32", F32, torch.float32), ("bf16", BF16, torch.bfloat16), ("f16", F16, torch.float16),
                                     ("f8_e4m3fn", E4M3, torch.uint8)):
        x = fill(mb * 1000 * 1000 // torch.empty(0, dtype=torch_dtype).element_size(), torch_dtype)
        view = view_of(x, dtype)
        actions = {"none": lambda: lib.scan(view, 1, 0), "sampled": lambda: lib.scan(view, 1, 1), "exact": lambda: lib.scan(view, 1, 2),
                   "roof": lambda: lib.read(x)}
        if dtype == F32:
            actions["torch"] = lambda: six_calls(x)
        times = rounds(count, time.thread_time, **actions)
        for mode, wanted in (("none", 0.8), ("sampled", 0.7), ("exact", 0.2)):
            ratios = {"of_read": (ratio(times, "roof", mode), wanted)}
            if "torch" in times:
                ratios["x_six_torch_calls"] = (ratio(times, "torch", mode), None)
            row(f"statistics {name}, histogram {mode}", statistics.median(times[mode]), mb / 1e3, **ratios)


def threads_row(lib, mb, count):
    whole, parts = gradients(mb, torch.float32)
    views, view = views_of(parts, F32), view_of(whole, F32)
    times = rounds(count, measure1=lambda: lib.measure(views, 1.0, 1), measure2=lambda: lib.measure(views, 1.0, 2),
                   scan1=lambda: lib.scan(view, 1, 0), scan2=lambda: lib.scan(view, 2, 0),
                   unscale1=lambda: lib.unscale(views, None, 1.0, 1), unscale2=lambda: lib.unscale(views, None, 1.0, 2),
                   read1=lambda: lib.read(whole, 1), read2=lambda: lib.read(whole, 2))
    for name in ("measure", "scan", "unscale", "read"):
        row(f"two threads: {name} f32", statistics.median(times[name + "2"]), mb / 1e3,
            x_one_thread=(ratio(times, name + "1", name + "2"), 1.6 if name != "read" else None))


ROWS = {"verdict": verdict, "l2": l2, "norm": norm, "unscale": unscale, "statistics": statistics_row, "threads": threads_row}


def main():
    parser = argparse.ArgumentParser(description="What a scan costs.")
    parser.add_argument("lib_path", metavar="LIBRARY")
    parser.add_argument("--mb", type=int, default=600, help="size of the large buffers in MB (600)")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    options = parser.parse_intermixed_args()
    unknown = [name for name in options.rows if name not in ROWS]
    if unknown:
        parser.error(f"unknown row {', '.join(unknown)}; there are {', '.join(ROWS)}")
    lib = Library(options.lib_path)
    torch.manual_seed(1)
    print(f"scan: kernel {lib.so.fb_scan_kernel().decode()}, {lib.so.roof_processors()} processors, torch {torch.__version__}, "
          f"numpy {numpy.__version__}, buffers of {options.mb} MB, median of {options.rounds} rounds")
    for name in options.rows or ROWS:
        ROWS[name](lib, options.mb, options.rounds)
    for text in missed:
        print(f"missed: {text}")


if __name__ == "__main__":
    main()

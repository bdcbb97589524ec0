/*
 * What is known of imports. A list of bad names can never be complete, and nothing depends on this one: nothing is ever imported.
 * It is there to tell people that a file would do something when a trusting program loads it.
 *
 * Rows are "module" or "module name". A module stands for itself and what lies below it. The most exact row decides: a name, then
 * the longest module. A name with dots in it walks through attributes, which can lead from any harmless module to any other
 * ("torch", "serialization.os.system"), so each of its parts is looked at, and a module of the harmless list does not speak for it.
 */
#include <string.h>

#include "ckpt/pickle.h"

/* Modules of CPython and of the field whose functions run code, start programs, load code or files, or reach the network. */
static const char *const dangerous_modules[] = {
    "os",
    "posix",
    "nt",
    "posixpath",
    "ntpath",
    "subprocess",
    "_posixsubprocess",
    "sys",
    "pty",
    "tty",
    "fcntl",
    "mmap",
    "signal",
    "_signal",
    "resource",
    "runpy",
    "importlib",
    "_frozen_importlib",
    "_frozen_importlib_external",
    "imp",
    "_imp",
    "pkgutil",
    "pydoc",
    "zipimport",
    "pip",
    "ensurepip",
    "venv",
    "setuptools",
    "distutils",
    "site",
    "sitecustomize",
    "pickle",
    "_pickle",
    "cPickle",
    "pickletools",
    "dill",
    "cloudpickle",
    "joblib",
    "jsonpickle",
    "marshal",
    "shelve",
    "dbm",
    "copyreg",
    "copy_reg",
    "shutil",
    "tempfile",
    "glob",
    "fileinput",
    "socket",
    "_socket",
    "socketserver",
    "ssl",
    "_ssl",
    "http",
    "urllib",
    "urllib2",
    "httplib",
    "ftplib",
    "smtplib",
    "poplib",
    "imaplib",
    "nntplib",
    "telnetlib",
    "xmlrpc",
    "requests",
    "httpx",
    "aiohttp",
    "paramiko",
    "webbrowser",
    "antigravity",
    "idlelib",
    "code",
    "codeop",
    "pdb",
    "bdb",
    "cmd",
    "trace",
    "timeit",
    "profile",
    "cProfile",
    "pstats",
    "doctest",
    "unittest",
    "test",
    "lib2to3",
    "ast",
    "compileall",
    "py_compile",
    "inspect",
    "gc",
    "types",
    "functools",
    "_functools",
    "operator",
    "_operator",
    "ctypes",
    "_ctypes",
    "cffi",
    "multiprocessing",
    "concurrent",
    "threading",
    "_thread",
    "thread",
    "asyncio",
    "_asyncio",
    "selectors",
    "sched",
    "commands",
    "popen2",
    "platform",
    "sysconfig",
    "logging.config",
    "sqlite3",
    "_sqlite3",
    "readline",
    "rlcompleter",
    "cgitb",
    "wsgiref",
    "turtle",
    "tkinter",
    "atexit",
    "faulthandler",
    "tracemalloc",
    "linecache",
    "zipfile",
    "tarfile",
    "bz2",
    "gzip",
    "lzma",
    "numpy.testing",
    "numpy.f2py",
    "numpy.distutils",
    "numpy.ctypeslib",
    "pandas.io",
    "torch.hub",
    "torch.jit",
    "torch.package",
    "torch.serialization",
    "torch.multiprocessing",
    "torch.distributed.rpc",
    "torch.distributed.run",
    "torch.distributed.launch",
    "torch.distributed.launcher",
    "torch.distributed.elastic",
    "torch.utils.cpp_extension",
    "torch.utils.model_zoo",
    "torch.utils.data",
    "torch.utils.bottleneck",
    "torch.utils.collect_env",
    "torch.utils._config_module",
    "torch.testing",
    "torch._dynamo",
    "torch._inductor",
    "torch._export",
    "torch.export",
    "torch.fx",
    "torch.onnx",
    "torch.ops",
    "torch._ops",
    "torch.classes",
    "torch._classes",
    "torch.library",
    "torch.cuda.nvrtc",
    "huggingface_hub",
    "transformers.pipelines",
    "transformers.utils.hub",
    "transformers.dynamic_module_utils",
};

static const char *const dangerous_names[] = {
    "builtins eval",
    "builtins exec",
    "builtins compile",
    "builtins open",
    "builtins __import__",
    "builtins execfile",
    "builtins input",
    "builtins raw_input",
    "builtins breakpoint",
    "builtins globals",
    "builtins locals",
    "builtins vars",
    "builtins setattr",
    "builtins delattr",
    "builtins hasattr",
    "builtins dir",
    "builtins help",
    "builtins apply",
    "builtins map",
    "builtins filter",
    "builtins reduce",
    "builtins reload",
    "builtins file",
    "builtins type",
    "builtins super",
    "builtins memoryview",
    "builtins exit",
    "builtins quit",
    "builtins __build_class__",
    "builtins __loader__",
    "builtins __dict__",
    "builtins property",
    "io open",
    "_io open",
    "io FileIO",
    "_io FileIO",
    "io open_code",
    "_io open_code",
    "codecs open",
    "pathlib _Accessor",
    "torch load",
    "torch save",
    "torch compile",
    "torch from_file",
    "torch.storage _load_from_bytes",
    "torch _load_global_deps",
    "torch._C _jit_script_compile",
    "torch._C import_ir_module",
    "torch._C import_ir_module_from_buffer",
    "numpy load",
    "numpy save",
    "numpy loadtxt",
    "numpy genfromtxt",
    "numpy fromfile",
    "numpy memmap",
    "numpy savez",
    "numpy savetxt",
    "numpy fromregex",
    "numpy vectorize",
    "numpy frompyfunc",
    "pandas read_pickle",
    "pandas eval",
    "yaml load",
    "yaml unsafe_load",
    "numpy apply_along_axis",
    "numpy apply_over_axes",
    "numpy fromfunction",
    "numpy piecewise",
};

/* What honest checkpoints hold. */
static const char *const harmless_names[] = {
    "builtins getattr", /* enums are written so; where it reaches elsewhere, torch_object.c says so */
    "builtins set",
    "builtins frozenset",
    "builtins dict",
    "builtins list",
    "builtins tuple",
    "builtins int",
    "builtins float",
    "builtins bool",
    "builtins str",
    "builtins bytes",
    "builtins bytearray",
    "builtins complex",
    "builtins slice",
    "builtins range",
    "builtins object",
    "builtins unicode",
    "builtins long",
    "builtins xrange",
    "builtins NotImplemented",
    "builtins Ellipsis",
    "collections OrderedDict",
    "collections defaultdict",
    "collections Counter",
    "collections deque",
    "collections ChainMap",
    "collections UserDict",
    "collections UserList",
    "_collections deque",
    "_collections defaultdict",
    "_collections OrderedDict",
    "copyreg _reconstructor",
    "copy_reg _reconstructor",
    "copyreg __newobj__",
    "copyreg __newobj_ex__",
    "argparse Namespace",
    "types SimpleNamespace",
    "types MappingProxyType",
    "pathlib PosixPath",
    "pathlib PurePosixPath",
    "pathlib WindowsPath",
    "pathlib PureWindowsPath",
    "pathlib Path",
    "pathlib._local PosixPath",
    "pathlib._local WindowsPath",
    "pathlib._local PurePosixPath",
    "pathlib._local Path",
    "datetime datetime",
    "datetime date",
    "datetime time",
    "datetime timedelta",
    "datetime timezone",
    "decimal Decimal",
    "fractions Fraction",
    "uuid UUID",
    "random Random",
    "array array",
    "array _array_reconstructor",
    "enum Enum",
    "enum IntEnum",
    "io BytesIO",
    "_io BytesIO",
    "io StringIO",
    "_io StringIO",
    "_codecs encode",
    "torch._utils _rebuild_tensor",
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_tensor_v3",
    "torch._utils _rebuild_parameter",
    "torch._utils _rebuild_parameter_with_state",
    "torch._utils _rebuild_qtensor",
    "torch._utils _rebuild_sparse_tensor",
    "torch._utils _rebuild_sparse_csr_tensor",
    "torch._utils _rebuild_meta_tensor_no_storage",
    "torch._utils _rebuild_wrapper_subclass",
    "torch._utils _rebuild_nested_tensor",
    "torch._utils _rebuild_device_tensor_from_numpy",
    "torch._utils _rebuild_device_tensor_from_cpu_tensor",
    "torch._utils _rebuild_xla_tensor",
    "torch._tensor _rebuild_from_type",
    "torch._tensor _rebuild_from_type_v2",
    "torch.tensor _rebuild_from_type",
    "torch._tensor Tensor",
    "torch Tensor",
    "torch Size",
    "torch device",
    "torch dtype",
    "torch finfo",
    "torch iinfo",
    "torch Generator",
    "torch._C Generator",
    "torch._C _DisabledTorchDispatch",
    "torch.nn.parameter Parameter",
    "torch.nn.parameter Buffer",
    "torch.nn.parameter UninitializedParameter",
    "torch.nn.parameter UninitializedBuffer",
    "torch.serialization _get_layout",
    "torch.storage UntypedStorage",
    "torch.storage _UntypedStorage",
    "torch.storage TypedStorage",
    "torch.storage _TypedStorage",
    "torch per_tensor_affine",
    "torch per_channel_affine",
    "torch per_tensor_symmetric",
    "torch per_channel_symmetric",
    "torch per_channel_affine_float_qparams",
    "torch.torch_version TorchVersion",
    "torch._C._nn gelu",
    "torch.nn.functional relu",
    "torch.nn.functional gelu",
    "torch.nn.functional silu",
    "torch.nn.functional softmax",
    "torch.nn.functional log_softmax",
    "torch.utils.data DistributedSampler",
    "numpy ndarray",
    "numpy dtype",
    "numpy.core.multiarray _reconstruct",
    "numpy.core.multiarray scalar",
    "numpy._core.multiarray _reconstruct",
    "numpy._core.multiarray scalar",
    "numpy.core.numeric _frombuffer",
    "numpy._core.numeric _frombuffer",
    "numpy.random._pickle __randomstate_ctor",
    "numpy.random._pickle __generator_ctor",
    "numpy.random._pickle __bit_generator_ctor",
    "numpy.random._mt19937 MT19937",
    "numpy.random._pcg64 PCG64",
    "numpy.random._pcg64 PCG64DXSM",
    "numpy.random._philox Philox",
    "numpy.random._sfc64 SFC64",
    "numpy.random.bit_generator SeedSequence",
    "numpy.random.bit_generator __pyx_unpickle_SeedSequence",
    "numpy.random.mtrand RandomState",
    "numpy.ma.core _mareconstruct",
    "numpy.ma.core MaskedArray",
    "ml_dtypes bfloat16",
    "ml_dtypes float8_e4m3fn",
    "ml_dtypes float8_e5m2",
    "ml_dtypes float8_e8m0fnu",
    "ml_dtypes float4_e2m1fn",
};

/* Packages of the field. They speak for classes alone, by the custom of their names: a capital first, after underscores. */
static const char *const harmless_modules[] = {
    "torch",
    "numpy",
    "megatron",
    "nemo",
    "deepspeed",
    "transformers.models",
    "transformers.training_args",
    "transformers.trainer_utils",
    "transformers.trainer_pt_utils",
    "transformers.trainer_callback",
    "transformers.integrations",
    "transformers.configuration_utils",
    "transformers.generation",
    "transformers.tokenization_utils_base",
    "transformers.tokenization_utils",
    "transformers.data",
    "transformers.optimization",
    "transformers.utils.quantization_config",
    "transformers.debug_utils",
    "accelerate.utils",
    "accelerate.state",
    "accelerate.scheduler",
    "accelerate.optimizer",
    "pytorch_lightning.utilities",
    "pytorch_lightning.callbacks",
    "lightning.pytorch.utilities",
    "lightning.pytorch.callbacks",
    "lightning_fabric.utilities",
    "lightning.fabric.utilities",
    "fairseq.data",
    "fairseq.dataclass",
    "omegaconf",
    "peft.tuners",
    "peft.utils",
    "trl.trainer",
    "apex.optimizers",
    "apex.amp",
    "bitsandbytes.nn",
    "bitsandbytes.functional",
    "torchao.dtypes",
    "torchao.quantization",
    "torchao.optim",
    "torchao.float8",
    "torchao.prototype",
    "torchvision.models",
    "transformer_engine.common",
    "transformer_engine.pytorch",
    "timm.models",
    "timm.layers",
    "composer.core",
    "streaming.base",
    "axolotl.utils",
    "collections",
    "ultralytics.nn",
    "detectron2.config",
    "yacs.config",
};

/* Parts of a dotted name that lead out of a module. */
static const char *const ways_out[] = {"system", "popen",        "eval",  "exec",   "open",    "compile",
                                       "load",   "loads",        "spawn", "fork",   "getattr", "setattr",
                                       "call",   "check_output", "Popen", "import", "globals"};

static int is(const char *text, uint64_t bytes, const char *row)
{
    return strlen(row) == bytes && memcmp(row, text, (size_t)bytes) == 0;
}

static int any_is(const char *const *rows, size_t count, const char *text, uint64_t bytes)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes && rows[i][0] == text[0] && is(text, bytes, rows[i])) return 1;
    }
    return 0;
}

/* Bytes of the longest row that is the module or a package around it. */
static uint64_t longest(const char *const *rows, size_t count, const char *module, uint64_t bytes)
{
    uint64_t best = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t n;
        if (bytes == 0 || rows[i][0] != module[0])
            continue; /* nearly all of them: asked for each import of each of many archives */
        n = strlen(rows[i]);
        if (n <= bytes && n > best && memcmp(rows[i], module, (size_t)n) == 0 && (n == bytes || module[n] == '.')) best = n;
    }
    return best;
}

#define ROWS(table) (table), sizeof(table) / sizeof(table)[0]

/* Does a name with dots pass through something that leads out? */
static int leads_out(const char *name, uint64_t bytes)
{
    for (uint64_t from = 0, i = 0; i <= bytes; i++) {
        if (i < bytes && name[i] != '.') continue;
        if (i - from >= 2 && name[from] == '_' && name[from + 1] == '_') return 1;
        if (any_is(ROWS(ways_out), name + from, i - from) || longest(ROWS(dangerous_modules), name + from, i - from)) return 1;
        from = i + 1;
    }
    return 0;
}

static int is_class_name(const char *name, uint64_t bytes)
{
    uint64_t i = 0;
    while (i < bytes && name[i] == '_') i++;
    return i < bytes && name[i] >= 'A' && name[i] <= 'Z';
}

/* "torch float8_e4m3fn", "numpy int64": formats are told by their spelling, so that new ones need no row. */
static int is_format(const char *text, uint64_t bytes)
{
    static const char *const starts[] = {"torch float",
                                         "torch bfloat",
                                         "torch half",
                                         "torch double",
                                         "torch int",
                                         "torch uint",
                                         "torch long",
                                         "torch short",
                                         "torch bool",
                                         "torch complex",
                                         "torch bits",
                                         "torch qint",
                                         "torch quint",
                                         "torch strided",
                                         "torch sparse_",
                                         "torch contiguous_format",
                                         "torch preserve_format",
                                         "numpy float",
                                         "numpy int",
                                         "numpy uint",
                                         "numpy bool",
                                         "numpy complex",
                                         "numpy str_",
                                         "numpy bytes_",
                                         "torch channels_last"};
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        uint64_t n = strlen(starts[i]);
        if (bytes >= n && memcmp(text, starts[i], (size_t)n) == 0) return memchr(text + n, '.', (size_t)(bytes - n)) == NULL;
    }
    return 0;
}

int fb_pickle_dangerous(const char *module_and_name, uint64_t bytes, int *unknown)
{
    static const char old[] = "__builtin__ ", new[] = "builtins ";
    char renamed[256];
    const char *text = module_and_name, *blank, *name;
    uint64_t module_bytes, name_bytes, bad, good;
    int dotted;
    *unknown = 0;
    /* Python 2's name of the module is translated by every loader. */
    if (bytes >= sizeof old - 1 && bytes < sizeof renamed && memcmp(text, old, sizeof old - 1) == 0) {
        memcpy(renamed, new, sizeof new - 1);
        memcpy(renamed + sizeof new - 1, text + sizeof old - 1, (size_t)(bytes - (sizeof old - 1)));
        bytes -= sizeof old - sizeof new;
        text = renamed;
    }
    if (any_is(ROWS(harmless_names), text, bytes)) return 0;
    if (any_is(ROWS(dangerous_names), text, bytes)) return 1;
    blank = memchr(text, ' ', (size_t)bytes);
    module_bytes = blank ? (uint64_t)(blank - text) : bytes;
    name = blank ? blank + 1 : text + bytes;
    name_bytes = blank ? bytes - module_bytes - 1 : 0;
    dotted = name_bytes && memchr(name, '.', (size_t)name_bytes) != NULL;
    if (dotted && leads_out(name, name_bytes)) return 1;
    bad = longest(ROWS(dangerous_modules), text, module_bytes);
    good = dotted ? 0 : longest(ROWS(harmless_modules), text, module_bytes);
    if (bad && bad >= good) return 1;
    if (good && (is_class_name(name, name_bytes) || is_format(text, bytes))) return 0;
    *unknown = 1;
    return 0;
}

/*
 * Source of the tables: torch/_utils.py, torch/_tensor.py, torch/storage.py, torch/serialization.py (1.0 to 2.13), and files that
 * these releases wrote.
 */
#include "ckpt/torch_names.h"

#include <string.h>

static const struct callee {
    const char *name;
    int is;
} callees[] = {
    {"torch._utils _rebuild_tensor", FB_TORCH_TENSOR},
    {"torch._utils _rebuild_tensor_v2", FB_TORCH_TENSOR},
    {"torch._utils _rebuild_tensor_v3", FB_TORCH_TENSOR_V3},
    {"torch._utils _rebuild_qtensor", FB_TORCH_QTENSOR},
    {"torch._utils _rebuild_sparse_tensor", FB_TORCH_SPARSE},
    {"torch._utils _rebuild_sparse_csr_tensor", FB_TORCH_SPARSE},
    {"torch._tensor _rebuild_from_type_v2", FB_TORCH_FROM_TYPE},
    {"torch._tensor _rebuild_from_type", FB_TORCH_FROM_TYPE},
    {"torch.tensor _rebuild_from_type", FB_TORCH_FROM_TYPE},
    {"torch._utils _rebuild_parameter", FB_TORCH_FIRST},
    {"torch._utils _rebuild_parameter_with_state", FB_TORCH_FIRST},
    {"torch._utils _rebuild_device_tensor_from_numpy", FB_TORCH_FIRST},
    {"torch._utils _rebuild_device_tensor_from_cpu_tensor", FB_TORCH_FIRST},
    {"torch._utils _rebuild_xla_tensor", FB_TORCH_FIRST},
    {"torch.nn.parameter Parameter", FB_TORCH_FIRST},
    {"torch.nn.parameter Buffer", FB_TORCH_FIRST},
    {"torch.autograd.variable Variable", FB_TORCH_FIRST},
    {"torch._utils _rebuild_meta_tensor_no_storage", FB_TORCH_NO_DATA},
    {"torch._utils _rebuild_wrapper_subclass", FB_TORCH_WRAPPER},
    {"torch Tensor", FB_TORCH_OLD_TENSOR},
    {"torch._tensor Tensor", FB_TORCH_OLD_TENSOR},
    {"torch.tensor Tensor", FB_TORCH_OLD_TENSOR},
    {"collections OrderedDict", FB_TORCH_DICT},
    {"collections defaultdict", FB_TORCH_DICT},
    {"collections Counter", FB_TORCH_DICT},
    {"numpy.core.multiarray _reconstruct", FB_TORCH_ARRAY},
    {"numpy._core.multiarray _reconstruct", FB_TORCH_ARRAY},
    {"numpy.ma.core _mareconstruct", FB_TORCH_ARRAY}, /* its state goes on with the mask */
    {"numpy.core.multiarray scalar", FB_TORCH_SCALAR},
    {"numpy._core.multiarray scalar", FB_TORCH_SCALAR},
    {"numpy.core.numeric _frombuffer", FB_TORCH_FROM_BUFFER},
    {"numpy._core.numeric _frombuffer", FB_TORCH_FROM_BUFFER},
    {"numpy dtype", FB_TORCH_NUMPY_DTYPE},
    {"_codecs encode", FB_TORCH_ENCODE},
    {"builtins bytearray", FB_TORCH_BYTEARRAY},
    {"__builtin__ bytearray", FB_TORCH_BYTEARRAY},
    {"_io BytesIO", FB_TORCH_BYTES_IO},
    {"io BytesIO", FB_TORCH_BYTES_IO},
    {"array _array_reconstructor", FB_TORCH_C_ARRAY},
    {"builtins getattr", FB_TORCH_GETATTR},
    {"__builtin__ getattr", FB_TORCH_GETATTR},
};

static const fb_torch_format formats[] = {
    {"float32", "FloatStorage", FB_F32, 4, 1},
    {"float64", "DoubleStorage", FB_F64, 8, 1},
    {"float16", "HalfStorage", FB_F16, 2, 1},
    {"bfloat16", "BFloat16Storage", FB_BF16, 2, 1},
    {"int64", "LongStorage", FB_I64, 8, 0},
    {"int32", "IntStorage", FB_I32, 4, 0},
    {"int16", "ShortStorage", FB_I16, 2, 0},
    {"int8", "CharStorage", FB_I8, 1, 0},
    {"uint8", "ByteStorage", FB_U8, 1, 0},
    {"bool", "BoolStorage", FB_BOOL, 1, 0},
    {"complex64", "ComplexFloatStorage", FB_C64, 8, 1},
    {"complex128", "ComplexDoubleStorage", FB_C128, 16, 1},
    {"qint8", "QInt8Storage", FB_I8, 1, 0},
    {"quint8", "QUInt8Storage", FB_U8, 1, 0},
    {"qint32", "QInt32Storage", FB_I32, 4, 0},
    {"quint4x2", "QUInt4x2Storage", 0, 1, 0},
    {"quint2x4", "QUInt2x4Storage", 0, 1, 0},
    {"complex32", "ComplexHalfStorage", FB_TORCH_COMPLEX32, 4, 1},
    {"float8_e4m3fn", NULL, FB_F8_E4M3FN, 1, 1},
    {"float8_e5m2", NULL, FB_F8_E5M2, 1, 1},
    {"float8_e4m3fnuz", NULL, FB_F8_E4M3FNUZ, 1, 1},
    {"float8_e5m2fnuz", NULL, FB_F8_E5M2FNUZ, 1, 1},
    {"float8_e8m0fnu", NULL, FB_F8_E8M0, 1, 1},
    {"float4_e2m1fn_x2", NULL, FB_U8, 1, 0}, /* two codes of four bits, which have no NaN; the shape counts bytes */
    {"uint16", NULL, FB_U16, 2, 0},
    {"uint32", NULL, FB_U32, 4, 0},
    {"uint64", NULL, FB_U64, 8, 0},
    {"bits8", NULL, FB_U8, 1, 0},
    {"bits16", NULL, FB_U16, 2, 0},
    {"bits1x8", NULL, FB_U8, 1, 0},
    {"bits2x4", NULL, FB_U8, 1, 0},
    {"bits4x2", NULL, FB_U8, 1, 0},
};

static int is(const char *text, uint64_t bytes, const char *row)
{
    return strlen(row) == bytes && memcmp(row, text, (size_t)bytes) == 0;
}

/* "torch.FloatTensor", "torch.cuda.HalfTensor": classes of the time before "torch.Tensor" was the only one. */
static int is_tensor_class(const char *text, uint64_t bytes)
{
    static const char plain[] = "torch ", cuda[] = "torch.cuda ", end[] = "Tensor";
    if (bytes < sizeof end - 1 || memcmp(text + bytes - (sizeof end - 1), end, sizeof end - 1) != 0) return 0;
    return (bytes > sizeof plain && memcmp(text, plain, sizeof plain - 1) == 0) ||
           (bytes > sizeof cuda && memcmp(text, cuda, sizeof cuda - 1) == 0);
}

int fb_torch_callee(const char *module_and_name, uint64_t bytes)
{
    for (size_t i = 0; i < sizeof callees / sizeof callees[0]; i++) {
        if (is(module_and_name, bytes, callees[i].name)) return callees[i].is;
    }
    return is_tensor_class(module_and_name, bytes) ? FB_TORCH_OLD_TENSOR : FB_TORCH_OTHER;
}

/* What follows the blank when the module is one of torch's. */
static const char *name_in_torch(const char *text, uint64_t *bytes)
{
    static const char *const modules[] = {"torch ", "torch.cuda ", "torch.storage "};
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++) {
        size_t n = strlen(modules[i]);
        if (*bytes > n && memcmp(text, modules[i], n) == 0) {
            *bytes -= n;
            return text + n;
        }
    }
    return NULL;
}

const fb_torch_format *fb_torch_storage_format(const char *module_and_name, uint64_t bytes, int *untyped)
{
    const char *name = name_in_torch(module_and_name, &bytes);
    *untyped = name && (is(name, bytes, "UntypedStorage") || is(name, bytes, "_UntypedStorage"));
    if (*untyped) return fb_torch_dtype_format("torch uint8", strlen("torch uint8"));
    for (size_t i = 0; name && i < sizeof formats / sizeof formats[0]; i++) {
        if (formats[i].storage && is(name, bytes, formats[i].storage)) return &formats[i];
    }
    return NULL;
}

const fb_torch_format *fb_torch_dtype_format(const char *module_and_name, uint64_t bytes)
{
    const char *name = name_in_torch(module_and_name, &bytes);
    for (size_t i = 0; name && i < sizeof formats / sizeof formats[0]; i++) {
        if (is(name, bytes, formats[i].name)) return &formats[i];
    }
    return NULL;
}

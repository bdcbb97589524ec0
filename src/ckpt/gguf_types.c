/*
 * Source: the structs of src/ggml-common.h and the ids of include/ggml.h in ggml 0.21. Of a quantised block only its scales are
 * floats: F16 where nothing else is said. Two are special. IQ1_M has no field for its scale, which lies in the top nibbles of four
 * other numbers. The scales of NVFP4 are E4M3 without a sign; ggml decodes the code of its NaN as 0 and never complains, we do.
 */
#include "ckpt/gguf_types.h"

#define PLAIN(name, dtype, bytes) \
    {                             \
        name, 1, bytes, dtype, 0, \
        {                         \
            {                     \
                0                 \
            }                     \
        }                         \
    }
#define LANE(name, dtype, at, count, elements) \
    {                                          \
        name, dtype, at, count, elements       \
    }
#define ONE(name, elements, bytes, at)         \
    {                                          \
        name, elements, bytes, 0, 1,           \
        {                                      \
            LANE("d", FB_F16, at, 1, elements) \
        }                                      \
    }
#define TWO(name, elements, bytes, at, second, second_at)                                    \
    {                                                                                        \
        name, elements, bytes, 0, 2,                                                         \
        {                                                                                    \
            LANE("d", FB_F16, at, 1, elements), LANE(second, FB_F16, second_at, 1, elements) \
        }                                                                                    \
    }
#define OTHER(name, elements, bytes, lane) \
    {                                      \
        name, elements, bytes, 0, 1,       \
        {                                  \
            lane                           \
        }                                  \
    }

static const fb_gguf_type types[] = {
    [0] = PLAIN("F32", FB_F32, 4),
    [1] = PLAIN("F16", FB_F16, 2),
    [2] = ONE("Q4_0", 32, 18, 0),
    [3] = TWO("Q4_1", 32, 20, 0, "m", 2),
    [6] = ONE("Q5_0", 32, 22, 0),
    [7] = TWO("Q5_1", 32, 24, 0, "m", 2),
    [8] = ONE("Q8_0", 32, 34, 0),
    [9] = TWO("Q8_1", 32, 36, 0, "s", 2),
    [10] = TWO("Q2_K", 256, 84, 80, "dmin", 82),
    [11] = ONE("Q3_K", 256, 110, 108),
    [12] = TWO("Q4_K", 256, 144, 0, "dmin", 2),
    [13] = TWO("Q5_K", 256, 176, 0, "dmin", 2),
    [14] = ONE("Q6_K", 256, 210, 208),
    [15] = OTHER("Q8_K", 256, 292, LANE("d", FB_F32, 0, 1, 256)),
    [16] = ONE("IQ2_XXS", 256, 66, 0),
    [17] = ONE("IQ2_XS", 256, 74, 0),
    [18] = ONE("IQ3_XXS", 256, 98, 0),
    [19] = ONE("IQ1_S", 256, 50, 0),
    [20] = ONE("IQ4_NL", 32, 18, 0),
    [21] = ONE("IQ3_S", 256, 110, 0),
    [22] = ONE("IQ2_S", 256, 82, 0),
    [23] = ONE("IQ4_XS", 256, 136, 0),
    [24] = PLAIN("I8", FB_I8, 1),
    [25] = PLAIN("I16", FB_I16, 2),
    [26] = PLAIN("I32", FB_I32, 4),
    [27] = PLAIN("I64", FB_I64, 8),
    [28] = PLAIN("F64", FB_F64, 8),
    [29] = OTHER("IQ1_M", 256, 56, LANE("d", FB_CKPT_LANE_IQ1_M, 48, 1, 256)),
    [30] = PLAIN("BF16", FB_BF16, 2),
    [34] = ONE("TQ1_0", 256, 54, 52),
    [35] = ONE("TQ2_0", 256, 66, 64),
    [39] = OTHER("MXFP4", 32, 17, LANE("e", FB_F8_E8M0, 0, 1, 32)),
    [40] = OTHER("NVFP4", 64, 36, LANE("d", FB_F8_E4M3FN, 0, 4, 16)),
    [41] = ONE("Q1_0", 128, 18, 0),
    [42] = ONE("Q2_0", 64, 18, 0),
};

const fb_gguf_type *fb_gguf_type_find(uint32_t id)
{
    return id < sizeof types / sizeof types[0] && types[id].name ? &types[id] : NULL;
}

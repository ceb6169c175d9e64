/* Returns 2^43 / sum, with as many fractional bits as make it a number in [2^30, 2^31): leading_zeros(sum) tells how
 * many. sum is a sum of exponentials with 19 fractional bits, the largest of which is 1. */
static inline int32_t softmax_scale(int32_t sum)
{
    return reciprocal_of_one_plus((int32_t)(((uint32_t)sum << leading_zeros(sum)) - ((uint32_t)1 << 31)));
}

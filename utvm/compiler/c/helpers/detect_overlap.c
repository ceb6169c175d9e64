/* Area of the intersection of two boxes (top, left, bottom, right), divided by the area of their union. */
static inline float detect_overlap(const float *one, const float *other)
{
    const float area = (one[2] - one[0]) * (one[3] - one[1]);
    const float area_of_other = (other[2] - other[0]) * (other[3] - other[1]);
    if (area <= 0.0f || area_of_other <= 0.0f) {
        return 0.0f;
    }
    float extent[2];
    for (int32_t axis = 0; axis < 2; ++axis) {
        const float start = one[axis] < other[axis] ? other[axis] : one[axis];
        const float end = other[2 + axis] < one[2 + axis] ? other[2 + axis] : one[2 + axis];
        extent[axis] = end - start < 0.0f ? 0.0f : end - start;
    }
    const float common = extent[0] * extent[1];
    return common / (area + area_of_other - common);
}

/* Rounds a number towards zero that is known to be between -1 and 256. */
static inline uint8_t fitting_uint8(float value)
{
    return (uint8_t)value;
}

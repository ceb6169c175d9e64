/* Four bytes from any address. */
static inline uint32_t load_word(const void *bytes)
{
    uint32_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

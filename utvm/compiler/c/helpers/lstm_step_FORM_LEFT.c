{% set helper = ("lstm_sums", "lstm_pairs", "lstm_words")[form] %}
{% set kind = "int8_t" if form == 0 else "int32_t" %}
/* One step of an int8 LSTM. output and hidden: [units], the hidden state after and before it. state: [units], the cell
 * state, which it changes. data: [depth]. weights, recurrent{{ ", biases" if form != 1 }}: of {{ helper }}{{ ", biases [2][units][4]" if form != 1 }}.
 * numbers: scales of forget, input, cell and output gate, as lstm_gate has them; scales of scale_sum for the products
 * with the forget gate, with the input gate and with the output gate; factor, addend and shift of the cell state before
 * its curve; its lowest and highest value; the hidden state's zero point. table: of curve_int16. sums: memory for
 * 64{{ ", then for expanded inputs and hidden state" if form }}. gates: memory for 32. */
static inline void {{ name }}(
    int8_t *output, const int8_t *hidden, int16_t *state, const int8_t *data, const {{ kind }} *weights, const {{ kind }} *recurrent,
    {{ "const int32_t *biases, " if form != 1 }}const int32_t *numbers, const uint16_t *table, int32_t *sums, int16_t *gates, int32_t depth,
    int32_t units)
{
    const uint16_t *const middle = table + 256;
    const int32_t columns = (depth + 3) / 4 * 4, recurrent_columns = (units + 3) / 4 * 4;
    {% if form == 0 %}
    const int32_t row = 4 * columns, recurrent_row = 4 * recurrent_columns;
    {% elif form == 1 %}
    const int32_t row = columns + 4, recurrent_row = recurrent_columns + 4;
    int32_t *const inputs = sums + 64;
    int32_t *const before = inputs + columns / 2;
    expand_values(inputs, data, depth);
    expand_values(before, hidden, units);
    {% else %}
    const int32_t row = columns, recurrent_row = recurrent_columns;
    int32_t *const inputs = sums + 64;
    int32_t *const before = inputs + 2 * columns;
    (void)expand_pairs(inputs, data, depth);
    (void)expand_pairs(before, hidden, units);
    {% endif %}
    for (int32_t first = 0; first < units; first += 8) {
        const int32_t count = units - first < 8 ? units - first : 8;
        {% set own, earlier = ("inputs", "before") if form else ("data", "hidden") %}
        {{ helper }}(sums, {{ own }}, weights + first * row, {{ "biases + 4 * first, " if form != 1 }}depth, count);
        {{ helper }}(sums + 32, {{ earlier }}, recurrent + first * recurrent_row, {{ "biases + 4 * (units + first), " if form != 1 }}units, count);
        lstm_gate_9_{{ left }}(gates, sums, numbers, middle, count);
        lstm_gate_9_{{ left }}(gates + 8, sums + 8, numbers + 6, middle, count);
        lstm_gate_8_{{ left }}(gates + 16, sums + 16, numbers + 12, middle, count);
        lstm_gate_9_{{ left }}(gates + 24, sums + 24, numbers + 18, middle, count);
        lstm_units(output + first, state + first, gates, numbers + 24, middle, count);
    }
}

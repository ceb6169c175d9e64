/* SPDX-License-Identifier: Apache-2.0 */
/* What the runtime is told of the board. Every file is compiled with it in front. */
{% for macro, value in defines %}
#define {{ macro }} {{ value }}
{% endfor %}

/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of the runtime for this board. Every file is compiled with this header included first. */
{% for macro, value in defines %}
#define {{ macro }} {{ value }}
{% endfor %}

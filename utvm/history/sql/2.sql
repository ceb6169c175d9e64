-- SPDX-License-Identifier: Apache-2.0
alter table run add column probe text;
alter table run add column place text;
alter table run add column holder text;

-- SPDX-License-Identifier: Apache-2.0
create table board (
    board integer primary key, name text not null, kind text not null, serial text not null,
    unique (name, kind, serial)
);
create table test (test integer primary key, id text not null unique);
create table series (
    series integer primary key, board integer not null references board, model text not null,
    executor text not null, figure text not null, unique (board, model, executor, figure)
);
create table run (
    run integer primary key, run_id text not null unique, started integer not null,
    board integer not null references board, commit_ text, dirty integer, verdict text not null,
    trouble text not null, night text
);
create table outcome (
    run integer not null references run, test integer not null references test, outcome integer not null,
    duration_ms integer, message text, primary key (run, test)
) without rowid;
create table figure (
    series integer not null references series, started integer not null, run integer not null references run,
    value, primary key (series, started, run)
) without rowid;
create index run_board on run (board, started);
create index run_started on run (started);
create index run_commit on run (commit_, board);
create index outcome_failed on outcome (test, run) where outcome = 1;

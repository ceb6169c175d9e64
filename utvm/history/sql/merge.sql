-- SPDX-License-Identifier: Apache-2.0
-- Adds the runs of the attached database "other" that main lacks. The table "added" then names them.
insert or ignore into board (name, kind, serial) select name, kind, serial from other.board;
insert or ignore into test (id) select id from other.test;
create temp table board_of as
    select o.board other, b.board from other.board o join main.board b using (name, kind, serial);
insert or ignore into series (board, model, executor, figure)
    select b.board, model, executor, figure from other.series s join board_of b on b.other = s.board;
create temp table added as
    select run_id from other.run where run_id not in (select run_id from main.run);
insert into run (run_id, started, board, commit_, dirty, verdict, trouble, night, probe, place, holder)
    select run_id, started, b.board, commit_, dirty, verdict, trouble, night, probe, place, holder
    from other.run r join board_of b on b.other = r.board
    where run_id in added;
create temp table run_of as
    select o.run other, r.run from other.run o join main.run r using (run_id) where run_id in added;
insert into outcome
    select r.run, t.test, outcome, duration_ms, message
    from other.outcome o
    join run_of r on r.other = o.run
    join other.test ot on ot.test = o.test
    join main.test t on t.id = ot.id;
insert into figure
    select s.series, f.started, r.run, value
    from other.figure f
    join run_of r on r.other = f.run
    join other.series os on os.series = f.series
    join board_of b on b.other = os.board
    join main.series s on s.board = b.board and s.model = os.model and s.executor = os.executor
        and s.figure = os.figure;

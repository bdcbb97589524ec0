. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
make_run r1 grad-nan
firstbad export --sqlite out.db
sql() { sqlite3 out.db "$1"; }
sql "select name from sqlite_master where type = 'table' order by name"
sql "select count(*), count(distinct rank), sum(applied), sum(gated), sum(skipped) from steps"
sql "select rank, step, frozen, boundary, module, tensor, kind, index_in_shape, bits, injected from findings order by frozen"
sql "select rank, step, action, agreement, unanimous, first_rank, case_id from verdicts order by rank"
sql "select rank, moment, equal from proofs order by rank, sequence"
sql "select value from run where key = 'precision' and rank = 0"
sql "select sample_ids from steps where rank = 2 and step = 3"
sql "select s.module, s.role from findings f join sites s on s.site = f.site and s.rank = f.rank limit 1"
# What nobody told is NULL, not 0.
sql "select count(*) from steps where grad_norm is null and checkpoint_parent is null and loss_scale_before is null"
sql "pragma integrity_check"

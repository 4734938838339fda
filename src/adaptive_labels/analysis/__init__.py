"""Run folders → statistics, tables, confusions and a report; torch is never needed."""

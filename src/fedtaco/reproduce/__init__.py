"""Reproduce: the paper's tables and figures, with the paper's numbers beside ours.

A preset becomes a plan, a plan is run, and its results become a table, a figure and files::

    plan = plan_reproduction(load_preset("table-rounds"), Scale("small"))
    reproduction = run_plan(plan, out, RunOptions(), Callback())
    export(reproduction, out)
"""

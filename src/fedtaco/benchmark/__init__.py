"""Benchmark: compare methods fairly, each tuned with the same budget and evaluated on fresh seeds.

A preset says what is compared. Running it gives a record, of which a page is drawn, at once or later::

    preset = load_preset("benchmark-smoke")
    record = run_benchmark(preset, out, RunOptions(), Callback())
    write_page(read_record(out / "benchmark.json"), out / "benchmark.html")
"""

"""Random command lines end with an exit code and, at most, one error in a sentence, never with a traceback."""

from __future__ import annotations

from random_commands import make_folder, random_command, run_command

COMMANDS = 40


def test_random_commands_are_done_or_refused_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    for seed in range(COMMANDS):
        folder = tmp_path / str(seed)
        make_folder(folder)
        monkeypatch.chdir(folder)
        monkeypatch.setenv("FEDTACO_DATA", str(folder / "data"))
        arguments = random_command(seed)
        ended = run_command(arguments)
        assert not ended.traceback, f"fedtaco {arguments}:\n{ended.traceback}"
        assert ended.code in (0, 2, 3), arguments
        assert ended.code == 0 or ended.output.count("Error: ") == 1, f"fedtaco {arguments}: {ended.output}"
        assert ended.output.replace("\n", "").isprintable(), arguments


def test_the_same_seed_gives_the_same_command():
    assert [random_command(seed) for seed in range(20)] == [random_command(seed) for seed in range(20)]
    assert len({random_command(seed)[0] for seed in range(200)}) == 9

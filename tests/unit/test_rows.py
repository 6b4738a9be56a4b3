"""Rows from arguments and files: each stands for itself, and a bad one says where it is."""

from pathlib import Path

import pytest
import typer

from mistnet.cli.input import Row, Sorted, read_id, read_links, require_plain, sort_rows


def plain(row: Row) -> Row:
    require_plain(row)
    return row


def read(folder: Path, content: bytes, column: str = "handle") -> Sorted[Row]:
    (folder / "rows").write_bytes(content)
    return sort_rows(None, folder / "rows", column, plain)


def test_arguments_come_before_the_lines_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text("bea\n\n  cid \n")
    found = sort_rows(["ann"], tmp_path / "rows", "handle", plain)
    assert [row.value for row in found.good] == ["ann", "bea", "cid"]
    assert [row.place for row in found.good] == ["", f"{tmp_path / 'rows'} line 1", f"{tmp_path / 'rows'} line 3"]


def test_a_header_makes_a_file_csv_wherever_the_column_stands(tmp_path: Path) -> None:
    found = read(tmp_path, b'\xef\xbb\xbfwallet, Handle,team\r\n0x1,ann,"red, or blue"\r\n,bea\r\n')
    assert [(row.value, row.cells) for row in found.good] == [
        ("ann", {"wallet": "0x1", "team": "red, or blue"}),
        ("bea", {"wallet": ""}),
    ]


def test_a_bad_row_is_told_with_its_line_and_the_good_ones_are_taken(tmp_path: Path) -> None:
    found = read(tmp_path, b'handle,note\nann,fine\nbea,a,b\ncid,\xff\ndan,nul\x00\neve,ok\nfay,"open\ngus,lost\n')
    assert [row.value for row in found.good] == ["ann", "eve"]
    told = {str(each).partition("rows ")[2] for each in found.bad}
    assert told == {
        "line 3: it has more cells than the header; put a cell with commas in double quotes",
        "line 4: note is not valid Unicode text",
        "line 5: note contains a NUL character, which databases refuse",
        "line 7: note runs over several lines; is a closing quote missing?",
    }


def test_nothing_at_all_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match="name at least one handle; --file FILE"):
        sort_rows(None, None, "handle", plain)
    with pytest.raises(typer.BadParameter, match="rows names nothing"):
        read(tmp_path, b"\n\n")
    with pytest.raises(typer.BadParameter, match=r"cannot read .*gone: No such file"):
        sort_rows(None, tmp_path / "gone", "handle", plain)


def test_a_cell_without_end_is_told(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match="cannot be read as CSV"):
        read(tmp_path, b'handle,note\nann,"' + b"x" * 200_000)


def test_ids_are_whole_numbers_that_fit() -> None:
    found = sort_rows(["12", " 7 ", str(2**63 - 1)], None, "id", read_id)
    assert found.good == [12, 7, 2**63 - 1]
    wrong = ["0", "-1", "1.5", "x", str(2**63), "9" * 5_000, "\N{ARABIC-INDIC DIGIT ONE}"]
    assert len(sort_rows(wrong, None, "id", read_id).bad) == len(wrong)


def test_commas_blanks_and_lines_may_stand_between_in_arguments_and_files_alike(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text("4,5, 6\n7 8\t9\n")
    found = sort_rows(["1,2", "3", " , "], tmp_path / "rows", "id", read_id)
    assert found.good == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    spoilt = sort_rows(["1,x"], None, "id", read_id)
    assert (spoilt.good, [each.value for each in spoilt.bad]) == ([1], ["x"])


def test_a_table_without_the_column_is_not_taken_for_a_list(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match=r"rows looks like CSV without a column 'handle'"):
        read(tmp_path, b"username,wallet\nann,0x1\nbea,0x2\n")


def test_a_list_of_addresses_is_left_whole_and_one_of_ids_is_not() -> None:
    assert read_links(["1,2", "https://shop.example/a,b", "3"], None) == ["1", "2", "https://shop.example/a,b", "3"]

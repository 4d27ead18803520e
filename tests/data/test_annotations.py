"""Pictures with boxes: four forms of the same boxes, and what is wrong with some."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from resnets.cli import main
from resnets.data import open_data
from resnets.data.annotations import open_annotated
from resnets.data.annotations.check import draw_sheet
from resnets.data.annotations.pictures import AnnotatedData
from resnets.data.annotations.voc import read_xml, take_evenly
from resnets.errors import UserError

SIZE = 80, 60
BOXES = {  # left, top, right, bottom; class
    "one": [((10, 20, 40, 50), "dog"), ((0, 0, 80, 60), "cat")],
    "two": [((5, 5, 15, 25), "cat")],
    "three": [],
}
SPLITS = {"train": ["one", "two"], "val": ["three"]}


def write_picture(path: Path, size: tuple[int, int] = SIZE) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (200, 100, 50)).save(path)


def write_voc(root: Path, boxes=BOXES, splits=SPLITS, extra: str = "") -> str:
    for name, objects in boxes.items():
        write_picture(root / "JPEGImages" / f"{name}.jpg")
        rows = "".join(
            f"<object><name>{label}</name>{extra}<bndbox><xmin>{a + 1}</xmin><ymin>{b + 1}</ymin><xmax>{c}</xmax>"
            f"<ymax>{d}</ymax></bndbox><part><name>head</name></part></object>"
            for (a, b, c, d), label in objects
        )
        (root / "Annotations").mkdir(exist_ok=True)
        (root / "Annotations" / f"{name}.xml").write_text(
            f"<annotation><size><width>80</width><height>60</height></size>{rows}</annotation>"
        )
    (root / "ImageSets" / "Main").mkdir(parents=True, exist_ok=True)
    for split, names in splits.items():
        (root / "ImageSets" / "Main" / f"{split}.txt").write_text("".join(f"{name} 1\n" for name in names))
    return f"voc:{root}"


def write_coco(root: Path, boxes=BOXES, splits=SPLITS) -> str:
    categories = [{"id": 7, "name": "cat"}, {"id": 90, "name": "dog"}]
    ids = {c["name"]: c["id"] for c in categories}
    words = ["coco"]
    for split, names in splits.items():
        for name in names:
            write_picture(root / split / f"{name}.jpg")
        images = [{"id": i, "file_name": f"{n}.jpg", "width": 80, "height": 60} for i, n in enumerate(names)]
        objects = [
            {"image_id": i, "category_id": ids.get(label, 1000), "bbox": [a, b, c - a, d - b], "area": 5, "iscrowd": 0}
            for i, name in enumerate(names)
            for (a, b, c, d), label in boxes[name]
        ]
        file = root / f"{split}.json"
        file.write_text(json.dumps({"images": images, "annotations": objects, "categories": categories}))
        words += [str(file), str(root / split)]
    return ":".join(words)


def write_yolo(root: Path, boxes=BOXES, splits=SPLITS) -> str:
    for split, names in splits.items():
        for name in names:
            write_picture(root / "images" / split / f"{name}.png")
            lines = [
                f"{['cat', 'dog'].index(label)} {(a + c) / 160} {(b + d) / 120} {(c - a) / 80} {(d - b) / 60}\n"
                for (a, b, c, d), label in boxes[name]
            ]
            (root / "labels" / split).mkdir(parents=True, exist_ok=True)
            if lines:
                (root / "labels" / split / f"{name}.txt").write_text("".join(lines))
    (root / "data.yaml").write_text("path: .\nnames:\n  0: cat\n  1: 'dog'  # a comment\nnc: 2\n")
    return f"yolo:{root}"


def write_csv(root: Path, boxes=BOXES, splits=SPLITS) -> str:
    lines = ["Filename,xmin,ymin,xmax,ymax,class,split"]
    for split, names in splits.items():
        for name in names:
            write_picture(root / "pictures" / f"{name}.png")
            rows = [f"pictures/{name}.png,{a},{b},{c},{d},{label},{split}" for (a, b, c, d), label in boxes[name]]
            lines += rows or [f"pictures/{name}.png,,,,,,{split}"]
    (root / "boxes.csv").write_text("\n".join(lines))
    return f"csv:{root / 'boxes.csv'}"


WRITERS = {"voc": write_voc, "coco": write_coco, "yolo": write_yolo, "csv": write_csv}
each_form = pytest.mark.parametrize("form", WRITERS)


@each_form
def test_four_forms_hold_the_same_boxes(form, tmp_path):
    data = open_data(WRITERS[form](tmp_path))
    assert isinstance(data, AnnotatedData)
    assert data.classes == ("cat", "dog")
    assert [Path(path).stem for path in data.train.paths] == ["one", "two"]
    assert [Path(path).stem for path in data.test.paths] == ["three"]
    truth = data.train.truth(0)
    assert np.allclose(truth.boxes, [[10, 20, 40, 50], [0, 0, 80, 60]])
    assert truth.labels.tolist() == [1, 0]
    assert data.train.truth(1).boxes.round(6).tolist() == [[5, 5, 15, 25]]
    assert data.test.truth(0).boxes.shape == (0, 4)
    assert data.train.sizes.tolist() == [[80, 60], [80, 60]]
    assert data.faults == ()


def test_areas_and_crowds_of_coco(tmp_path):
    word = write_coco(tmp_path)
    file = tmp_path / "train.json"
    content = json.loads(file.read_text())
    content["annotations"][1]["iscrowd"] = 1
    del content["annotations"][1]["area"]
    file.write_text(json.dumps(content))
    truth = open_annotated(word).train.truth(0)
    assert truth.areas.tolist() == [5, 4800]
    assert truth.crowd.tolist() == [False, True]


def test_difficult_objects_of_voc(tmp_path):
    word = write_voc(tmp_path, extra="<difficult>1</difficult>")
    assert open_annotated(word).train.truth(0).difficult.all()


BAD = {
    "has no area": ((30, 20, 30, 50), "dog"),
    "lies outside the picture of 80x60": ((90, 20, 99, 50), "dog"),
    "reaches beyond the picture of 80x60": ((60, 20, 99, 50), "dog"),
}


@each_form
@pytest.mark.parametrize("fault", BAD)
def test_bad_boxes_are_named_and_skipped_or_refused(form, fault, tmp_path):
    boxes = {**BOXES, "two": [*BOXES["two"], BAD[fault], BAD[fault]]}
    word = WRITERS[form](tmp_path, boxes)
    with pytest.raises(UserError, match=f"{fault}.*and 1 more boxes are bad.*--bad-boxes clip or skip"):
        open_annotated(word)
    said = []
    skipped = open_annotated(word, bad_boxes="skip", warn=said.append)
    assert skipped.train.truth(1).labels.tolist() == [0]
    assert len(said) == len(skipped.faults) == 2
    assert "two" in said[0] or "annotations[3]" in said[0] or "line 5" in said[0]
    assert fault in said[0]
    clipped = open_annotated(word, bad_boxes="clip").train.truth(1)
    cut = fault.startswith("reaches")
    assert clipped.boxes[1:].round(6).tolist() == ([[60, 20, 80, 50]] * 2 if cut else [])


def test_unknown_classes_are_named(tmp_path):
    word = write_voc(tmp_path)
    with pytest.raises(UserError, match=r"object 1 of .*one.xml is of the unknown class 'dog'"):
        open_annotated(word, classes=("cat",))
    assert open_annotated(word, classes=("cat",), bad_boxes="skip").train.truth(0).labels.tolist() == [0]
    yolo = write_yolo(tmp_path / "yolo")
    (tmp_path / "yolo" / "labels" / "train" / "two.txt").write_text("5 0.5 0.5 0.1 0.1\n")
    with pytest.raises(UserError, match=r"line 1 of .*two.txt is of the unknown class 'number 5'"):
        open_annotated(yolo)


def test_rounding_beyond_the_edge_is_cut_silently(tmp_path):
    data = open_annotated(write_csv(tmp_path, {**BOXES, "two": [((-0.6, 0, 80.4, 60), "cat")]}))
    assert data.train.truth(1).boxes.tolist() == [[0, 0, 80, 60]]
    assert not data.faults


# --- VOC --------------------------------------------------------------------------------------


def test_lists_of_a_devkit(tmp_path):
    write_voc(tmp_path / "VOC2007", splits={"trainval": ["one"], "test": ["two"]})
    write_voc(tmp_path / "VOC2012", splits={"trainval": ["two", "three"], "train": ["two"], "val": ["three"]})
    usual = open_annotated(f"voc:{tmp_path}", bad_boxes="skip")
    assert [Path(p).parts[-3:] for p in usual.train.paths] == [
        ("VOC2007", "JPEGImages", "one.jpg"),
        ("VOC2012", "JPEGImages", "two.jpg"),
        ("VOC2012", "JPEGImages", "three.jpg"),
    ]
    assert [Path(p).stem for p in usual.test.paths] == ["two"]
    named = open_annotated(f"voc:{tmp_path}:2012/trainval@1:2007/test+2012/val")
    assert [Path(p).stem for p in named.train.paths] == ["two"]
    assert [Path(p).stem for p in named.test.paths] == ["two", "three"]
    with pytest.raises(UserError, match="needs one of the years here: 2007/train, 2012/train"):
        open_annotated(f"voc:{tmp_path}:train")
    with pytest.raises(UserError, match="asks for more pictures than the 2"):
        open_annotated(f"voc:{tmp_path}:2012/trainval@5")
    with pytest.raises(UserError, match=r"cannot read the list .*there are test, trainval"):
        open_annotated(f"voc:{tmp_path}:2007/tests")


def test_some_of_a_list_are_always_the_same():
    names = [str(i) for i in range(10)]
    assert take_evenly(names, 4, "") == ["0", "2", "5", "7"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('<!DOCTYPE a [<!ENTITY b "bbbb">]><annotation>&b;</annotation>', "document type"),
        ('<!DOCTYPE a SYSTEM "file:///etc/passwd"><annotation/>', "document type"),
        ("<a>" * 100 + "</a>" * 100, "nested deeper"),
        ("<annotation>", "is not XML"),
        ("<annotation>&b;</annotation>", "is not XML"),
        ("", "is not XML"),
        ("{}", "is not XML"),
    ],
)
def test_dangerous_or_damaged_xml_is_refused(text, words, tmp_path):
    path = tmp_path / "a.xml"
    path.write_text(text)
    with pytest.raises(UserError, match=words):
        read_xml(path)


def test_names_of_pictures_stay_in_their_folder(tmp_path):
    write_voc(tmp_path, splits={"train": ["../../secret"]})
    with pytest.raises(UserError, match="not the name of a picture"):
        open_annotated(f"voc:{tmp_path}:train")


# --- damaged files ----------------------------------------------------------------------------


def test_wrong_coco_is_refused(tmp_path):
    word = write_coco(tmp_path)
    file = tmp_path / "train.json"
    good = json.loads(file.read_text())

    def refuse(words: str, **changes: object) -> None:
        file.write_text(json.dumps({**good, **changes}))
        with pytest.raises(UserError, match=words):
            open_annotated(word)

    image, one = good["images"][0], good["annotations"][0]
    refuse("needs the lists images", images=5)
    refuse(r"images\[0\].file_name must be text", images=[{**image, "file_name": 5}])
    refuse("must be a file inside of", images=[{**image, "file_name": "../../a.jpg"}])
    refuse(r"images\[1\] has the id 0, which another image has", images=[image, image])
    refuse(r"annotations\[0\].bbox must be four numbers", annotations=[{**one, "bbox": [1, 2, "3", 4]}])
    refuse("names the image 99, which is not among images", annotations=[{**one, "image_id": 99}])
    refuse("has other categories", categories=[{"id": 7, "name": "cat"}])
    refuse("that another one has", categories=[{"id": 7, "name": "cat"}, {"id": 7, "name": "dog"}])
    file.write_text("{")
    with pytest.raises(UserError, match="is not JSON"):
        open_annotated(word)


def test_wrong_csv_is_refused(tmp_path):
    word = write_csv(tmp_path)
    file = tmp_path / "boxes.csv"
    lines = file.read_text().splitlines()
    for text, words in (
        ("a,b\n1,2", "has no column file, left"),
        (f"{lines[0]}\n../a.png,1,2,3,4,cat,train", "beside the CSV file"),
        (f"{lines[0]}\npictures/one.png,1,2,x,4,cat,train", "line 2 .*must be four numbers"),
        (f"{lines[0]}\npictures/one.png,1,2,3,4,cat,tests", "split must be train, val or test"),
        (f"{lines[0]}\npictures/none.png,1,2,3,4,cat,train", "cannot be read"),
    ):
        file.write_text(text)
        with pytest.raises(UserError, match=words):
            open_annotated(word)


def test_wrong_yolo_is_refused(tmp_path):
    word = write_yolo(tmp_path)
    text = tmp_path / "labels" / "train" / "two.txt"
    for line, words in (("0 0.5 0.5", "has 2 numbers"), ("cat 0.5 0.5 0.1 0.1", "must be a class and numbers")):
        text.write_text(line)
        with pytest.raises(UserError, match=f"line 1 of .*{words}"):
            open_annotated(word)
    text.write_text("1 0.25 0.5 0.5 0.25 0.5 0.75")  # a polygon
    assert open_annotated(word).train.truth(1).boxes.tolist() == [[20, 15, 40, 45]]
    (tmp_path / "data.yaml").write_text("names: [cat, 'dog']\n")
    assert open_annotated(word).classes == ("cat", "dog")
    (tmp_path / "data.yaml").unlink()
    with pytest.raises(UserError, match="does not name its classes"):
        open_annotated(word)
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    assert open_annotated(word).classes == ("cat", "dog")


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("voc:", "are written as"),
        ("coco:a.json", "written as coco:JSON:DIR"),
        ("yolo:a:b", "written as yolo:DIR"),
        ("voc:/nowhere/at/all", "there is no folder"),
        ("csv:/nowhere/a.csv", "cannot read"),
    ],
)
def test_wrong_words_are_refused(word, words):
    with pytest.raises(UserError, match=words):
        open_annotated(word)


def test_folder_without_annotations(tmp_path):
    for kind, words in (("voc", "is not VOC's form"), ("yolo", "does not name"), ("csv", "must have one CSV file")):
        with pytest.raises(UserError, match=words):
            open_annotated(f"{kind}:{tmp_path}")


# --- the check --------------------------------------------------------------------------------


def test_check_command_names_what_is_bad(tmp_path, capsys):
    boxes = {**BOXES, "two": [*BOXES["two"], BAD["has no area"]]}
    word = write_voc(tmp_path, boxes)
    write_picture(tmp_path / "JPEGImages" / "one.jpg", (60, 80))  # turned round
    (tmp_path / "JPEGImages" / "three.jpg").write_bytes(b"no picture")
    sheet = tmp_path / "sheet.png"
    assert main(["data", "check", word, "--sheet", str(sheet)]) == 1
    out = capsys.readouterr().out
    assert "has 60x80 pixels, and its annotation says 80x60" in out
    assert "three.jpg cannot be decoded" in out
    assert "1 bad boxes" in out
    assert "two.xml has no area" in out
    with Image.open(sheet) as drawn:
        assert drawn.size[0] > 300
    assert main(["data", "check", word, "--bad-images", "skip"]) == 0
    assert main(["data", "check", word, "--sheet", "sheet.txt"]) == 2
    assert main(["data", "check", str(tmp_path), "--sheet", "sheet.png"]) == 2


def test_sheet_shows_the_boxes(tmp_path):
    data = open_annotated(write_voc(tmp_path))
    sheet = np.asarray(draw_sheet(data.train, data.classes))
    colours = {tuple(pixel) for pixel in sheet.reshape(-1, 3)[::7].tolist()}
    assert len(colours) > 5  # frames and texts over a plain picture


def test_data_with_boxes_is_no_data_for_a_classifier(tmp_path, capsys):
    assert main(["train", "preresnet20", "--data", write_voc(tmp_path), "--out", str(tmp_path / "runs")]) == 2
    assert "has boxes, which a detector needs" in capsys.readouterr().err
    assert not os.path.exists(tmp_path / "runs")

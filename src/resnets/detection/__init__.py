"""Detect objects: Faster R-CNN as in v1. Boxes, anchors, operators, the detector, its tests and its metrics."""

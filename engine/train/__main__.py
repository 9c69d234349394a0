"""``python -m engine.train``: see `pipeline.py`."""

from engine.train.pipeline import main

if __name__ == "__main__":
    main()

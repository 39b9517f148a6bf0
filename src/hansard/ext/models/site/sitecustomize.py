"""Guard the model clients of a child of `hansard record`, then run the user's own sitecustomize.

Python imports this file at the start of a process, because its folder is first on PYTHONPATH.
"""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent


def _guard() -> None:
    """Load the module of the clients by its path: Hansard may not be installed here."""
    path = _HERE.parent / "clients.py"
    spec = importlib.util.spec_from_file_location("_hansard_model_clients", path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        module.guard()


def _chain() -> None:
    """Run the sitecustomize that this one hides, if there is one."""
    others = [each for each in sys.path if Path(each or ".").resolve() != _HERE]
    sys.path[:] = others
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    _guard()
    _chain()

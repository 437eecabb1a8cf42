"""The build backend of treaper's source distribution: says why there is no wheel for this machine.

pip and uv take the source distribution only if no wheel fits. Without it they would say that there is no treaper.
"""

import platform
import sys

MACHINES = ("x86_64", "aarch64", "riscv64", "armv7l", "i686")


def _refuse():
    if platform.system() != "Linux":
        reason = f"treaper needs Linux, and this is {platform.system()}."
    elif platform.machine() not in MACHINES:
        reason = (f"there are wheels for {', '.join(MACHINES)}, and this processor is {platform.machine()}. "
                  "'cargo install treaper' builds treaper from source.")
    else:
        reason = ("this installer found no wheel that it can use. Update it ('pip install --upgrade pip'), "
                  "or use 'cargo install treaper'.")
    sys.exit(f"treaper: cannot install the Python package: {reason}")


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    _refuse()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _refuse()


def build_sdist(sdist_directory, config_settings=None):
    _refuse()

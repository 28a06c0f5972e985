# SPDX-License-Identifier: Apache-2.0
"""Conan 2: conan create packaging/conan -s compiler.cppstd=20. The package is the headers of this working tree."""

import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.files import copy
from conan.tools.layout import basic_layout


class Pergrad(ConanFile):
    name = "pergrad"
    description = "Per-sample gradients and differentially private training in C++20"
    license = "Apache-2.0"
    topics = ("differential-privacy", "dp-sgd", "per-sample-gradients", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    no_copy_source = True

    @property
    def _root(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        with open(os.path.join(self._root, "include", "pergrad", "version.hpp"), encoding="utf-8") as file:
            self.version = ".".join(re.findall(r"#define PERGRAD_VERSION_\w+ (\d+)", file.read()))

    def export_sources(self):
        copy(self, "include/*", self._root, self.export_sources_folder)
        copy(self, "LICENSE", self._root, self.export_sources_folder)

    def layout(self):
        basic_layout(self)

    def validate(self):
        if self.settings.get_safe("compiler.cppstd"):
            check_min_cppstd(self, 20)

    def package_id(self):
        self.info.clear()

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        copy(self, "*", os.path.join(self.source_folder, "include"), os.path.join(self.package_folder, "include"))

    def package_info(self):
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        if self.settings.os in ("Linux", "FreeBSD"):
            self.cpp_info.system_libs = ["pthread"]

// expect-error: a temporary matrix would be gone
// SPDX-License-Identifier: Apache-2.0
#include <Eigen/Core>

#include <pergrad/eigen.hpp>

int main() {
  const Eigen::VectorXi classes = Eigen::VectorXi::Zero(3);
#ifdef COMPILE_FAIL_FIXED
  const pergrad::eigen::matrix<float> table{3, 4};
  const auto records = pergrad::eigen::records(table, classes, pergrad::shape{4});
#else
  const auto records = pergrad::eigen::records(pergrad::eigen::matrix<float>{3, 4}, classes, pergrad::shape{4});
#endif
  return records.size() == 3 ? 0 : 1;
}

// expect-error: the matrix lies column after column
// SPDX-License-Identifier: Apache-2.0
#include <Eigen/Core>

#include <pergrad/eigen.hpp>

int main() {
#ifdef COMPILE_FAIL_FIXED
  const pergrad::eigen::matrix<float> table{3, 4};
#else
  const Eigen::MatrixXf table{3, 4};
#endif
  return pergrad::eigen::values(table).size() == 12 ? 0 : 1;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A matrix product and a bias, with ztensors that free themselves. */
#include <cstdio>
#include <vector>

#include "zdnn.hpp"

int main() {
  const std::vector<float> a = {1, 2, 3, 4, 5, 6};     /* 2 x 3 */
  const std::vector<float> b = {1, 0, 0, 1, 1, 1};     /* 3 x 2 */
  const std::vector<float> bias = {10, 20};
  zdnn::Tensor input_a(ZDNN_3DS, FP32, {1, 2, 3});
  zdnn::Tensor input_b(ZDNN_3DS, FP32, {1, 3, 2});
  zdnn::Tensor input_c(ZDNN_2DS, FP32, {1, 2});
  zdnn::Tensor output(ZDNN_3DS, FP32, {1, 2, 2});
  input_a.fill(a.data());
  input_b.fill(b.data());
  input_c.fill(bias.data());
  zdnn::check(zdnn_matmul_op(input_a.get(), input_b.get(), input_c.get(), MATMUL_OP_ADDITION,
                             output.get()));
  for (float element : output.read<float>(4)) {
    std::printf("%g\n", static_cast<double>(element));
  }
  try {
    zdnn::Tensor nothing(ZDNN_1D, FP32, {0});
  } catch (const zdnn::Error &error) {
    std::printf("%s\n", error.what());
  }
  return 0;
}

// expect-error: vit: patches must fill the image
// SPDX-License-Identifier: Apache-2.0
#include <pergrad/models.hpp>
#include <pergrad/pergrad.hpp>

namespace models = pergrad::models;

#ifdef COMPILE_FAIL_FIXED
constexpr std::size_t image = 32;
#else
constexpr std::size_t image = 33;
#endif

using net_type = models::vit<models::vit_size{
    .image = image, .patch = 16, .blocks = 1, .features = 8, .heads = 2, .feed_forward = 8, .classes = 3}>;

// SPDX-License-Identifier: Apache-2.0
// tests/cuda/more_layers_test.cpp - affine maps and pools along one and three axes, adapters and repeated blocks
//
// They have no device code of their own: a geometry is all that a device needs of them. Each is compared with the host.
#include "device_fixture.hpp"
#include "layers/derived.hpp"

BOOST_AUTO_TEST_SUITE(cuda_more_layers)

namespace {

using namespace device_fixture;

/// Channels of positions: strides, dilation and groups along one axis, both kinds of windows.
using signal = pg::basic_network<double, pg::shape{4, 19}, pg::conv1d<6, 3, pg::padding<1>, pg::groups<2>>, pg::tanh,
                                 pg::max_pool1d<3, pg::stride<2>, pg::padding<1>>,
                                 pg::conv1d<5, 2, pg::dilation<2>, pg::no_bias>, pg::sigmoid, pg::upsample<2>,
                                 pg::avg_pool1d<3>, pg::adaptive_avg_pool1d<2>, pg::flatten, pg::linear<3>>;
/// Volumes with three different sides.
using volume = pg::basic_network<double, pg::shape{2, 5, 6, 7}, pg::conv3d<4, 2, pg::stride<1, 2, 2>, pg::padding<1>>,
                                 pg::softplus, pg::max_pool3d<2>, pg::upsample<pg::extent{2, 1, 2}>,
                                 pg::conv3d<3, 2, pg::groups<1>>, pg::relu, pg::adaptive_avg_pool3d<1, 2, 2>,
                                 pg::flatten, pg::linear<3>>;
/// An adapter beside a frozen matrix, and a block that stands there three times with weights of its own.
using adapted = pg::basic_network<double, pg::shape{4, 7}, pg::lora<2, pg::linear<6>>, pg::gelu,
                                  pg::repeat<3, pg::linear<6>, pg::tanh>, pg::flatten, pg::linear<3>>;

/// Transposed convolutions: the adjoints of geometries with strides, groups and dilation, with and without a bias.
template <std::size_t Width>
using decoder =
    pg::basic_network<double, pg::shape{4, 3, Width},
                      pg::conv_transpose2d<6, 3, pg::stride<2>, pg::padding<1>, pg::output_padding<1>, pg::groups<2>>,
                      pg::tanh, pg::residual<pg::conv_transpose2d<6, 3, pg::padding<1>, pg::no_bias>, pg::sigmoid>,
                      pg::conv_transpose2d<2, pg::extent{2, 3}, pg::dilation<2>>, pg::flatten, pg::linear<3>>;
/// Channels and positions that change places, inside a branch and beside one.
template <std::size_t Positions>
using turned = pg::basic_network<double, pg::shape{Positions, 4}, pg::linear<6>, pg::tanh,
                                 pg::residual<pg::transpose, pg::linear<Positions>, pg::transpose>, pg::transpose,
                                 pg::conv1d<3, 2>, pg::transpose, pg::flatten, pg::linear<3>>;

/// An affine layer of a user's own, that does not say how shapes are numbered: of an image there is one way.
struct corners {
  static constexpr pg::shape output_shape(pg::shape in) { return {3, in.e1, in.e2}; }
  static constexpr pg::affine_map affine(pg::shape in) {
    const pg::extent size{in.e1, in.e2};
    return {.in_channels = in.e0, .in_size = size, .out_channels = 3, .out_size = size, .kernel = {2}, .padding = {1}};
  }
};
using derived_pool = pg::basic_network<double, pg::shape{2, 4, 4}, pg::conv2d<3, 1>, derived::twice_the_sum,
                                       pg::flatten, pg::linear<3>, pg::reshape<pg::shape{1, 3}>>;

template <std::size_t Width>
using cornered =
    pg::basic_network<double, pg::shape{2, 4, Width}, corners, pg::tanh, corners, pg::flatten, pg::linear<3>>;

}  // namespace

BOOST_AUTO_TEST_SUITE_END()

namespace pergrad::inline v0_1::on_device {
template <>
inline constexpr plan_kind plan_of<cuda_more_layers::decoder<5>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<cuda_more_layers::turned<7>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<cuda_more_layers::cornered<6>> = plan_kind::layered;
}  // namespace pergrad::inline v0_1::on_device

BOOST_AUTO_TEST_SUITE(cuda_more_layers)

BOOST_AUTO_TEST_CASE(convolutions_and_pools_along_one_axis_are_the_hosts) {
  compare_gradients<signal, pg::cross_entropy>("one axis");
}
BOOST_AUTO_TEST_CASE(convolutions_and_pools_along_three_axes_are_the_hosts) {
  compare_gradients<volume, pg::cross_entropy>("three axes");
}
BOOST_AUTO_TEST_CASE(adapters_and_repeated_blocks_are_the_hosts) {
  compare_gradients<adapted, pg::mean_squared_error>("adapters");
}
BOOST_AUTO_TEST_CASE(transposed_convolutions_are_the_hosts) {
  compare_gradients<decoder<4>, pg::cross_entropy>("decoder");
  compare_gradients<decoder<5>, pg::cross_entropy>("decoder, layered");
}
BOOST_AUTO_TEST_CASE(axes_that_change_places_are_the_hosts) {
  compare_gradients<turned<5>, pg::cross_entropy>("turned");
  compare_gradients<turned<7>, pg::cross_entropy>("turned, layered");
}
BOOST_AUTO_TEST_CASE(affine_layers_of_users_are_the_hosts) {
  compare_gradients<cornered<5>, pg::cross_entropy>("a geometry");
  compare_gradients<cornered<6>, pg::cross_entropy>("a geometry, layered");
}
BOOST_AUTO_TEST_CASE(what_derives_from_pools_and_losses_is_the_hosts) {
  compare_gradients<derived_pool, derived::twice_the_loss>("derived");
}

BOOST_AUTO_TEST_SUITE_END()

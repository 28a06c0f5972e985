# SPDX-License-Identifier: Apache-2.0
"""model_test.py: the model's reading of machine code and its bounds, on code and launches that are made up for it."""

import pathlib
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import cuda_report  # noqa: E402
import kernel_times  # noqa: E402
import model  # noqa: E402
import power  # noqa: E402
import sass  # noqa: E402

H200 = model.DEVICES["h200"]


def listing(*lines):
    """As nvdisasm prints it; what ends in a colon is a label."""
    out = ["\t.section\t.text._Zkernel,\"ax\",@progbits", ".text._Zkernel:"]
    for place, line in enumerate(lines):
        out.append(line if line.endswith(":") else f"        /*{16 * place:04x}*/                   {line} ;")
    return "\n".join([*out, "\t.section\t.nv.info", "        /*0000*/                   FFMA R0, R0, R0, R0 ;"])


def product_code(ffma, others=0, slow=0):
    """Parts, in them slices, in them the loop of a slice that is not whole."""
    multiply, load = "FFMA R1, R2, R3, R1", "LDS.128 R4, [R5]"
    return sass.functions(listing(
        "LDC R1, c[0x0][0x28]", ".L_x_1:", "LDG.E R2, [R2.64]", ".L_x_2:", *[multiply] * ffma, *[load] * others,
        ".L_x_3:", *[multiply] * slow, "@P0 BRA `(.L_x_3)", "@!P1 BRA P2, `(.L_x_2)", "STG.E [R2.64], R3",
        "@P2 BRA `(.L_x_1)", "EXIT", ".L_x_4:", "BRA `(.L_x_4)"))["_Zkernel"]


def launch(**more):
    usual = dict(what="forward", kernel="k", blocks=1320, threads=128, shared=1024, tile=[64, 64, 4], slices=1000.0,
                 parts=1, multiply_adds=1320 * 1000 * 64.0 * 64 * 4, fetched=0, bytes=1e3, again_bytes=0, precision="float", held_bytes=0,
                 chain=0, double_chain=0, square_chain=0, read_chain=0, held_chain=0, patch_chain=0, double_sums=0, element_rounds=0,
                 group=0, branch=0, after=-1, near_rounds=0, held_forward=0, held_back=0, held_rows=0, held_tiles=0, held_streams=0, held_together=1, tile_chain=0, tiles=0, tile_loads=0, powers=0)
    return {**usual, **more}


class Sass(unittest.TestCase):
    def test_loops_own_what_loops_inside_do_not(self):
        function = product_code(ffma=8, others=2, slow=3)
        self.assertEqual(len(function.loops), 3)  # what branches to itself at the end is none
        main = function.main_loop()
        self.assertEqual((main.count("FFMA"), main.count("LDS"), main.instructions()), (8, 2, 11))
        self.assertEqual(main.own["LDS.128"], 2)
        self.assertEqual([loop.instructions() for loop in function.around(main)], [3])
        self.assertEqual(sorted(function.top), ["BRA", "EXIT", "LDC"])
        self.assertEqual(len(function.names), 21)

    def test_registers(self):
        said = ("ptxas info    : Compiling entry function '_Zkernel' for 'sm_90'\n"
                "ptxas info    : Function properties for _Zkernel\n    0 bytes stack frame\n"
                "ptxas info    : Used 155 registers, used 1 barriers\n")
        self.assertEqual(sass.registers(said), {"_Zkernel": 155})

    def test_kernels_are_found_by_their_types(self):
        self.assertEqual(
            model.kernel_of("void a::run_kernel<a::k<float, b<1> > >(a::k<float, b<1> >)"),
            "a::k<float, b<1> >")
        self.assertEqual(model.kernel_of("void a::run_kernel<a::k>(a::k)"), "a::k")
        self.assertIsNone(model.kernel_of("void a::other(int)"))


class Blocks(unittest.TestCase):
    def test_a_multiprocessor_holds_what_fits(self):
        self.assertEqual(model.resident_blocks(H200, 256, 182, 17000), 1)  # 2 x 256 x 184 registers are too many
        self.assertEqual(model.resident_blocks(H200, 256, 128, 17000), 2)
        self.assertEqual(model.resident_blocks(H200, 128, 32, 60 << 10), 3)  # 228 / 61
        self.assertEqual(model.resident_blocks(H200, 1024, 32, 0), 2)
        self.assertEqual(model.resident_blocks(H200, 32, 16, 0), 32)


class Bounds(unittest.TestCase):
    def bound(self, function, registers=128, device=H200, **more):
        return model.predict(launch(**more), function, registers, device)

    def test_multiply_adds_alone_are_nearly_the_peak(self):
        found = self.bound(product_code(ffma=128))
        self.assertIn(found["bound"], ("issue", "FFMA"))
        self.assertGreater(found["roofline_share"], 0.75)  # 1320 blocks are 2.5 waves of 528
        self.assertLessEqual(found["roofline_share"], 1)

    def test_as_many_other_instructions_halve_it(self):
        alone = self.bound(product_code(ffma=128))
        with_others = sass.functions(listing(".L_x_1:", *["FFMA R1, R2, R3, R1"] * 128, *["IADD3 R1, R2, R3, R4"] * 128,
                                             "@P0 BRA `(.L_x_1)", "EXIT"))["_Zkernel"]
        found = self.bound(with_others)
        self.assertEqual(found["bound"], "issue")
        self.assertAlmostEqual(found["us"] / alone["us"], 2, delta=0.1)

    def test_one_warp_finds_steps_also_those_of_records(self):
        def us(*loads):
            return self.bound(sass.functions(listing(
                ".L_x_1:", *["FFMA R1, R2, R3, R1"] * 128, "@P1 BRA `(.L_x_2)", *loads, *["IADD3 R1, R2, R3, R4"] * 128,
                "STS [R1], R2", ".L_x_2:", "@P0 BRA `(.L_x_1)", "EXIT"))["_Zkernel"])["us"]
        load = "LDG.E R2, [R2.64]"
        self.assertAlmostEqual(us(load, load) / us(), 1, delta=0.01)  # numbers of two records
        self.assertGreater(us(*[load] * 8) / us(), 1.3)  # elements, which all warps load

    def test_shared_memory(self):
        self.assertEqual(self.bound(product_code(ffma=128, others=64))["bound"], "shared memory")

    def test_few_blocks(self):
        few = self.bound(product_code(ffma=128), blocks=2, slices=660_000.0)
        self.assertEqual(few["bound"], "too few blocks")
        self.assertGreater(few["us"], 50 * self.bound(product_code(ffma=128))["us"])

    def test_memory(self):
        found = self.bound(product_code(ffma=128), bytes=1e11)
        self.assertEqual(found["bound"], "memory")
        self.assertAlmostEqual(found["us"], 1e11 / 4.8e6 + model.GAP)
        self.assertAlmostEqual(found["roofline_share"], 1, places=3)

    def test_one_block_alone_waits(self):
        found = self.bound(product_code(ffma=8), threads=32, tile=[16, 16, 1], blocks=132)
        self.assertEqual(found["bound"], "latency")

    def test_doubles_are_slow_on_a_jetson(self):
        dots = sass.functions(listing(".L_x_1:", *["LDG.E R2, [R2.64]"] * 8, *["DFMA R1, R2, R3, R1"] * 8,
                                      "@P0 BRA `(.L_x_1)", "EXIT"))["_Zkernel"]
        work = dict(what="samples, norms", slices=0, tile=[0, 0, 0], double_chain=1000.0, multiply_adds=0)
        self.assertEqual(self.bound(dots, device=model.DEVICES["orin"], **work)["bound"], "DFMA")
        self.assertNotEqual(self.bound(dots, **work)["bound"], "DFMA")

    def test_each_chain_of_doubles_runs_its_own_loop(self):
        def loop(label, multiply, own):
            return [f".L_x_{label}:", *["LDG.E R2, [R2.64]"] * multiply, *["F2F.F64.F32 R4, R2"] * multiply,
                    *["DFMA R1, R4, R4, R1"] * multiply, *own, f"@P0 BRA `(.L_x_{label})"]
        code = sass.functions(listing(*loop(1, 8, []), *loop(2, 4, ["FMUL R2, R2, R3"] * 4 + ["IMAD R3, R3, R4, R5"] * 400),
                                      *loop(3, 1, ["IMAD R3, R3, R4, R5"] * 200), "EXIT"))["_Zkernel"]
        def us(**chain):
            return self.bound(code, what="samples, norms", slices=0, tile=[0, 0, 0], multiply_adds=0, **chain)["us"] - model.GAP
        row, formed, padded = us(square_chain=1000.0), us(read_chain=1000.0), us(double_chain=1000.0)
        # Of a row's numbers the conversion is the most, 16 a clock: 32 lanes of it take 2.
        self.assertAlmostEqual(row, 10 * 4 * 1000 * 2 / 1980, delta=0.2 * row)
        self.assertGreater(formed, 10 * row)
        self.assertGreater(padded, 5 * row)

    def layer_on_tiles(self, device=H200, **work):
        """By one block a multiprocessor that waits for L2, of code with dots, patches and sums."""
        multiply, load = "FFMA R1, R2, R3, R1", "LDG.E R2, [R2.64]"
        code = sass.functions(listing(
            ".L_x_1:", *[load] * 8, *[multiply] * 4, "@P0 BRA `(.L_x_1)", ".L_x_2:", *[load] * 8, *[multiply] * 16,
            "@P0 BRA `(.L_x_2)", ".L_x_3:", load, *[multiply] * 8, "MUFU.EX2 R1, R1", "STG.E [R2.64], R1",
            "@P0 BRA `(.L_x_3)", "EXIT"))["_Zkernel"]
        blocks, work = device["multiprocessors"], {"threads": 32, "busy": 1, **work}
        multiply_adds = (work.get("chain", 0) + work.get("patch_chain", 0)) * work["threads"] * blocks * work.pop("busy")
        return self.bound(code, device=device, what="samples, forward", slices=0, tile=[0, 0, 0], blocks=blocks,
                          multiply_adds=multiply_adds, again_bytes=2e5 * blocks, **work)

    def test_a_patch_waits_once_for_what_its_rows_and_columns_multiply(self):
        def waits(**work):
            return (self.layer_on_tiles(**work)["us"] - model.GAP) * 1980 - 2 * 400  # clocks, without the first loads
        self.assertAlmostEqual(waits(chain=16_000), 16_000 * (200 / 4 + 4))
        self.assertAlmostEqual(waits(patch_chain=16_000), 1_000 * (200 + 4))
        full = self.layer_on_tiles(threads=2048, patch_chain=16_000)
        self.assertEqual(full["bound"], "shared memory")  # 8 loads are more than 16 multiply-adds
        few = self.layer_on_tiles(threads=2048, patch_chain=16_000, busy=1 / 64)  # warps without an output run nothing
        self.assertEqual(few["bound"], "latency")

    def test_rows_that_a_warp_has_are_near(self):
        def us(**work):
            return self.layer_on_tiles(**work)["us"] - model.GAP - 800 / 1980
        self.assertAlmostEqual(us(element_rounds=10_000) / us(near_rounds=10_000), 200 / 28)

    def test_sums_in_double_are_slow_on_a_jetson(self):
        work = {"threads": 256, "double_sums": 10_000, "near_rounds": 10_000}
        self.assertEqual(self.layer_on_tiles(model.DEVICES["orin"], **work)["bound"], "DFMA")
        self.assertNotEqual(self.layer_on_tiles(**work)["bound"], "DFMA")

    def test_tensor_cores(self):
        code = sass.functions(listing(".L_x_1:", *["HMMA.1688.F32.TF32 R1, R2, R3, R1"] * 64, "@P0 BRA `(.L_x_1)",
                                      "EXIT"))["_Zkernel"]
        self.assertEqual(self.bound(code, tile=[64, 64, 64], precision="tf32")["bound"], "tensor")

    def test_products_of_tiles_are_their_loops_and_what_stands_around_them(self):
        def found(ffma, around, hmma=0, **work):
            inner = [".L_x_2:"] + ["FFMA R1, R2, R3, R1"] * ffma + ["LDS R2, [R4]"] * 2 + ["@P0 BRA `(.L_x_2)"]
            inner[1:1] = ["HMMA.1688.F32.TF32 R4, R8, R2, R4"] * hmma
            lines = [".L_x_1:"] + ["IADD3 R5, R5, R6, RZ"] * around + inner + ["@P1 BRA `(.L_x_1)", "EXIT"]
            return self.bound(sass.functions(listing(*lines))["_Zkernel"], what="attention", slices=0, tile=[0, 0, 0],
                              blocks=132 * 8, threads=128, **work)

        def us(*counts, **work):
            return found(*counts, **work)["us"]

        chain = {"tile_chain": 100_000, "multiply_adds": 1e9}
        # 32 multiply-adds in 35 instructions, or 8 in 11
        self.assertAlmostEqual(us(8, 1, **chain) / us(32, 1, **chain), (11 / 8) / (35 / 32), delta=0.02)
        self.assertGreater(us(32, 1000, tiles=100, **chain), 1.5 * us(32, 1, tiles=100, **chain))
        # One instruction of tensor cores is 32 of a thread's multiply-adds.
        on_tensor_cores = found(0, 1, hmma=8, **chain)
        self.assertEqual(on_tensor_cores["bound"], "tensor")
        device = model.DEVICES["h200"]
        at_best = 132 * 8 * 128 * 100_000 * 2 / (device["tf32"] * 1e6)
        self.assertAlmostEqual(on_tensor_cores["us"] / at_best, 1, delta=0.1)

    def test_biases_add_what_they_load(self):
        def bound(loads):
            lines = [".L_x_1:", *["LDG.E R2, [R2.64]"] * loads, *["FADD R1, R2, R1"] * loads, "@P0 BRA `(.L_x_1)", "EXIT"]
            return self.bound(sass.functions(listing(*lines))["_Zkernel"], what="gradients of biases", slices=0,
                              tile=[0, 0, 0], multiply_adds=1320 * 128 * 1000.0, chain=1000.0, double_chain=0,
                              element_rounds=0)
        self.assertEqual(bound(1)["bound"], "latency")
        self.assertLess(bound(8)["us"], 0.5 * bound(1)["us"])

    def test_sums_of_integers_wait_for_conversions(self):
        lines = [".L_x_1:", "LDG.E R2, [R2.64]", ".L_x_2:", *["FMUL R1, R2, R3"] * 32, *["F2I.S64 R4, R1"] * 16,
                 *["IADD3 R4, R4, R6, RZ"] * 16, "@P0 BRA `(.L_x_2)", "@P1 BRA `(.L_x_1)", "EXIT"]
        code = sass.functions(listing(*lines))["_Zkernel"]
        terms = 1320 * 64 * 64 * 4 * 1000
        found = self.bound(code, what="sums", threads=256, multiply_adds=terms)
        self.assertEqual(found["bound"], "issue")
        # 64 * 64 * 4 terms a slice: of 16 a round of the inner loop, 65 instructions of which 16 take 8 slots.
        slots = 1 + 1000 * (2 + 4 * (65 + 7 * 16))
        self.assertAlmostEqual(found["us"] - model.GAP, 8 * slots / 4 * 2 * 5 / 1980, delta=0.2 * found["us"])
        few = self.bound(code, what="sums", threads=256, multiply_adds=terms / 4)  # one sample a slice
        self.assertAlmostEqual(few["us"] / found["us"], 1 / 4, delta=0.04)

    def test_sums_of_small_shares_are_two_products_a_term(self):
        def code(*more):
            return sass.functions(listing(".L_x_1:", *["FMUL R1, R2, R3"] * 128, *more, *["IADD3 R4, R4, R6, R1"] * 64,
                                          "@P0 BRA `(.L_x_1)", "EXIT"))["_Zkernel"]
        plain = self.bound(product_code(ffma=128))
        shifted = self.bound(code(*["FADD R1, R1, R2"] * 128), what="sums")
        self.assertAlmostEqual(shifted["us"] / plain["us"], 2.5, delta=0.1)
        converted = self.bound(code(*["FMUL R1, R1, R2"] * 128, *["F2I.NTZ R1, R1"] * 128), what="sums")
        self.assertAlmostEqual(converted["us"] / plain["us"], 4.5, delta=0.1)

    def test_a_loop_without_its_tile_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "no loop has the multiply-adds of its tile"):
            self.bound(product_code(ffma=127))

    def test_steps_are_sums(self):
        parts = [self.bound(product_code(ffma=128)), self.bound(product_code(ffma=128), bytes=1e11)]
        step = model.step_of(parts, H200)
        self.assertAlmostEqual(step["step_us"], parts[0]["us"] + parts[1]["us"])
        self.assertEqual(step["bound"], "memory")


class SideBySide(unittest.TestCase):
    def kernel(self, branch=0, after=-1, registers=128, **more):
        return model.predict(launch(group=1, branch=branch, after=after, **more), product_code(ffma=128), registers, H200)

    def us(self, *kernels):
        return model.step_of(list(kernels), H200)["step_us"]

    def test_one_behind_the_other_they_add_up(self):
        kernels = [self.kernel(blocks=blocks) for blocks in (1, 132, 1320)]
        self.assertAlmostEqual(self.us(*kernels), sum(each["us"] for each in kernels))

    def test_two_halves_that_fill_a_device_are_the_whole(self):
        whole, half = self.kernel(blocks=132 * 8), self.kernel(blocks=132 * 4, branch=1)
        self.assertAlmostEqual(self.us(half, {**half, "branch": 2}), whole["us"])

    def test_those_that_leave_room_take_the_time_of_one(self):
        few = self.kernel(blocks=60, branch=1)
        self.assertAlmostEqual(self.us(few, {**few, "branch": 2}), few["us"])
        self.assertAlmostEqual(self.us(few, few), 2 * few["us"])  # of one branch

    def test_a_branch_waits_for_what_it_needs(self):
        few = self.kernel(blocks=60)
        self.assertAlmostEqual(self.us(few, {**few, "branch": 1, "after": 0}), 2 * few["us"])
        self.assertAlmostEqual(self.us(few, {**few, "branch": 1, "after": -1}), few["us"])

    def test_few_blocks_behind_many_wait_for_room(self):
        many, few = self.kernel(blocks=132 * 4, branch=1), self.kernel(blocks=60, branch=2)
        self.assertGreater(self.us(many, few), many["us"] + 0.9 * (few["us"] - model.GAP))

    def test_memory_is_shared(self):
        alone = self.kernel(bytes=1e11, branch=1)
        self.assertAlmostEqual(self.us(alone, {**alone, "branch": 2}), 2 * (alone["us"] - model.GAP) + model.GAP)


class Power(unittest.TestCase):
    def test_rails_are_added_up_unless_one_is_the_whole(self):
        orin = "RAM 1/2MB CPU [0%@729] VDD_GPU_SOC 2391mW/2400mW VDD_CPU_CV 400mW/398mW VIN_SYS_5V0 2818mW/1mW NC 0mW/0mW"
        self.assertAlmostEqual(power.watts(orin), 5.609)
        self.assertAlmostEqual(power.watts("VDD_IN 5081mW/5000mW VDD_CPU_GPU_CV 518mW/518mW VDD_SOC 1475mW/1mW"), 5.081)
        self.assertIsNone(power.watts("RAM 1/2MB CPU [0%@729]"))

    def test_the_power_mode_is_what_the_board_says(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "nvpmodel"
            program.write_text("#!/bin/sh\necho NV Power Mode: MAXN\necho 0\n", encoding="utf-8")
            program.chmod(0o755)
            self.assertEqual(power.mode(str(program)), "NV Power Mode: MAXN")
        self.assertEqual(power.mode(str(program)), "")

    def test_a_watch_takes_the_mean_and_ends_what_it_began(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "tegrastats"
            program.write_text("#!/bin/sh\necho VDD_IN 2000mW/1mW\necho VDD_IN 4000mW/1mW\nexec sleep 60\n", encoding="utf-8")
            program.chmod(0o755)
            begin = time.monotonic()
            with power.Watch(str(program)) as watch:
                while len(watch.samples) < 2 and time.monotonic() < begin + 30:
                    time.sleep(0.01)
            self.assertEqual(watch.mean(), 3)
            watch.samples[0] = (watch.samples[0][0] - 100, 2)
            self.assertEqual(watch.mean(last=90), 4)
            self.assertLess(time.monotonic(), begin + 50)
        with power.Watch(str(program)) as watch:  # it is gone
            pass
        self.assertFalse(watch.is_there)
        self.assertIsNone(watch.mean())


class KernelTimes(unittest.TestCase):
    def listing(self, *names, unit="ns"):
        lines = ['"ID","Kernel Name","Grid Size","Metric Name","Metric Unit","Metric Value"']
        for number, name in enumerate(names):
            for metric, (_, its_unit, _) in kernel_times.METRICS.items():
                lines.append(f'"{number}","void run_kernel<{name}>(T1)","(1, 1, 1)","{metric}",'
                             f'"{unit if its_unit == "ns" else its_unit}","1,000"')
        return "\n".join(["==PROF== Connected", *lines])

    def test_the_second_of_two_steps_that_are_alike(self):
        step = kernel_times.of_a_step(self.listing("a<int, 1>", "b", "a<int, 1>", "b"))
        self.assertEqual([each["kernel"] for each in step], ["a<int, 1>", "b"])
        self.assertEqual((step[0]["us"], step[0]["bytes"], step[0]["issue"]), (1, 1000, 10))

    def test_what_is_no_step_is_refused(self):
        for text in ("==ERROR== no permission", '"ID"', self.listing("a", "b"), self.listing("a", "b", "a"),
                     self.listing("a", "a", unit="us")):
            self.assertRaises(ValueError, kernel_times.of_a_step, text)


class Report(unittest.TestCase):
    def test_predicted_stands_beside_measured(self):
        machine = {"gpu": "NVIDIA H200", "multiprocessors": 132, "runtime": 13000, "driver": 13000, "date": "",
                   "seconds": 1}
        row = {"task": "mlp", "framework": cuda_report.OURS, "batch": 256, "graph_us": 7654.0, "loop_us": 1.0,
               "poisson_us": 1.0, "nodes": 4, "peak_mb": 1.0}
        predicted = cuda_report.modelled(machine)["mlp", 256, "float"]
        text = cuda_report.markdown(machine, [], [row])
        line = next(each for each in text.splitlines() if "7654" in each)
        self.assertIn(f"| {cuda_report.number(predicted)} | 4 |", line)
        self.assertTrue(line.endswith("|  |"))
        joules = cuda_report.markdown(machine, [], [{**row, "steps_per_joule": 12.34}])
        self.assertIn("| 12.3 |\n", joules)
        tf32 = cuda_report.markdown(machine, [], [{**row, "precision": "tf32"}])
        predicted = cuda_report.modelled(machine)["mlp", 256, "tf32"]
        self.assertIn(f"| TF32 | 7654 | 1 | 1 |  | {cuda_report.number(predicted)} | 4 |", tf32)
        bf16 = cuda_report.markdown(machine, [], [{**row, "precision": "bf16"}])
        self.assertIn("| BF16 | 7654 | 1 | 1 |", bf16)
        unknown = cuda_report.markdown({**machine, "gpu": "another"}, [], [row])
        self.assertIn("|  | 4 |", next(each for each in unknown.splitlines() if "7654" in each))
        self.assertNotEqual(cuda_report.modelled({"gpu": "Orin", "multiprocessors": 16}), {})
        self.assertEqual(cuda_report.modelled({"gpu": "Orin", "multiprocessors": 8}), {})  # a smaller one


    def test_ours_is_compared_with_the_fastest_of_its_precision(self):
        def row(framework, us, precision):
            figure = "loop_us" if framework == cuda_report.OURS else "us"
            return {"task": "mlp", "framework": framework, "batch": 16, "precision": precision, figure: us}
        found = cuda_report.ratios([row(cuda_report.OURS, 10, "float"), row("torch", 40, "float"),
                                    row("torch_graph", 20, "float"), row("torch_compiled", 1, "tf32"),
                                    row("opacus_hooks", 50, "float"), row("jax_scan", 70, "float")])
        self.assertEqual(found, [{"task": "mlp", "batch": 16, "precision": "float", "best_dp_peer": "opacus_hooks",
                                  "faster_than_best_dp_peer": 5, "best_torch_without_dp": "torch_graph",
                                  "faster_than_best_torch_without_dp": 2}])


if __name__ == "__main__":
    unittest.main()

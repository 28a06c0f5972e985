// SPDX-License-Identifier: Apache-2.0
// tests/files/interrupted_save_test.cpp - a process that is killed at any of its system calls while it saves, and a
// system that refuses one, leave the old file or the new one, whole
//
// The child is traced: ptrace(2) stops it before and behind every system call, and there it is killed. Refusals come
// from a seccomp(2) filter. Where either is not allowed, the test says so.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "train/fixture.hpp"

BOOST_AUTO_TEST_SUITE(files_interrupted_save)

namespace {

using namespace fixture;

struct folder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("pergrad_interrupted_" + std::to_string(::getpid()));
  folder() { std::filesystem::create_directories(path); }
  ~folder() { std::filesystem::remove_all(path); }
  folder(const folder&) = delete;
  folder& operator=(const folder&) = delete;
  /// All files but the one, and those that a save has begun.
  [[nodiscard]] std::size_t others(const std::string& name) const {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator{path}) count += entry.path() == name ? 0U : 1U;
    return count;
  }
};
std::string read(const std::string& path) {
  std::string bytes(std::filesystem::file_size(path), '\0');
  std::ifstream{path, std::ios::binary}.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

/// How a child ended that was killed at the stop of this number, if it lived so long.
enum class end { killed, finished, not_traced };
end kill_at(std::size_t stop, const std::function<void()>& work) {
  const ::pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(3);
    ::raise(SIGSTOP);
    work();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!WIFSTOPPED(status)) return end::not_traced;
  for (std::size_t number = 0; number < stop; ++number) {
    if (::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr) != 0) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      return end::not_traced;
    }
    ::waitpid(child, &status, 0);
    if (WIFEXITED(status)) return WEXITSTATUS(status) == 0 ? end::finished : end::not_traced;
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  return end::killed;
}

/// The fsync and rename calls of `work` in their order, by name; none where nobody may be traced.
std::string syncs_and_renames(const std::function<void()>& work) {
  const ::pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(3);
    ::raise(SIGSTOP);
    work();
    ::_exit(0);
  }
  std::string found;
  int status = 0;
  ::waitpid(child, &status, 0);
  ::ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD);
  while (WIFSTOPPED(status)) {
    __ptrace_syscall_info info{};
    if (::ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof info, &info) > 0 && info.op == PTRACE_SYSCALL_INFO_ENTRY) {
      const auto call = static_cast<long>(info.entry.nr);
      if (call == SYS_fsync) found += "fsync ";
      if (call == SYS_renameat || call == SYS_renameat2) found += "rename ";
#ifdef SYS_rename
      if (call == SYS_rename) found += "rename ";
#endif
    }
    if (::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr) != 0) ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
  }
  return found;
}

/// What `work` printed by exception in a child whose system calls of these numbers fail with EIO; "" if it went well
/// and "not allowed" where there are no filters.
std::string with_failing(const std::set<long>& calls, const std::function<void()>& work) {
  int ends[2];
  BOOST_TEST_REQUIRE(::pipe(ends) == 0);
  const ::pid_t child = ::fork();
  if (child == 0) {
    const auto say = [&](const std::string& text) {
      if (::write(ends[1], text.data(), text.size()) < 0) ::_exit(2);
      ::_exit(0);
    };
    std::vector<sock_filter> filter{
        sock_filter(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<unsigned>(offsetof(seccomp_data, nr))))};
    for (const long call : calls) {
      filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1));
      filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EIO));
    }
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
      say("not allowed");
    }
    try {
      work();
    } catch (const std::runtime_error& error) {
      say(error.what());
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string said(4096, '\0');
  const ::ssize_t count = ::read(ends[0], said.data(), said.size());
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  BOOST_TEST(WIFEXITED(status));
  said.resize(static_cast<std::size_t>(std::max<::ssize_t>(count, 0)));
  return said;
}

}  // namespace

BOOST_AUTO_TEST_CASE(killed_at_any_system_call_the_old_file_or_the_new_one_is_there) {
  const folder here;
  const std::string path = (here.path / "run").string();
  const pg::host exec{pg::threads{1}};
  classifier before{exec, pg::kaiming_uniform{1}}, after{exec, pg::kaiming_uniform{2}};
  pg::dp_sgd_options options = usual_options();
  options.momentum = 0.5;
  const pg::dp_sgd first{exec, before, pg::cross_entropy{}, options}, second{exec, after, pg::cross_entropy{}, options};
  pg::save_checkpoint(second, path);
  const std::string new_file = read(path);
  pg::save_checkpoint(first, path);
  const std::string old_file = read(path);
  BOOST_TEST_REQUIRE((old_file != new_file));
  std::size_t stops = 0, old_ones = 0, new_ones = 0, others = 0;
  for (; stops < 10'000; ++stops) {
    pg::save_checkpoint(first, path);
    const end how = kill_at(stops, [&] { pg::save_checkpoint(second, path); });
    if (how == end::not_traced) {
      BOOST_TEST_MESSAGE("ptrace is not allowed here: nobody was killed");
      return;
    }
    const std::string found = read(path);
    (found == old_file ? old_ones : found == new_file ? new_ones : others) += 1;
    if (how == end::finished) break;
  }
  BOOST_TEST_MESSAGE(stops << " kills: " << old_ones << " old files, " << new_ones << " new ones");
  BOOST_TEST(others == 0U);
  BOOST_TEST(stops > 20U);  // open, write, fsync, close, rename, open, fsync, before and behind each
  BOOST_TEST(old_ones > 10U);
  BOOST_TEST(new_ones > 3U);
  // What the killed have left is in nobody's way.
  BOOST_TEST(here.others(path) > 5U);
  pg::save_checkpoint(second, path);
  BOOST_TEST((read(path) == new_file));
}

// The same search finds what a save in place does: that the test above can fail.
BOOST_AUTO_TEST_CASE(a_save_in_place_would_be_found) {
  const folder here;
  const std::string path = (here.path / "run").string();
  const std::string old_file(100'000, 'o'), new_file(100'000, 'n');
  const auto write_in_place = [&](const std::string& bytes) {
    std::ofstream{path, std::ios::binary}.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  };
  std::size_t others = 0;
  for (std::size_t stops = 0; stops < 1000; ++stops) {
    write_in_place(old_file);
    const end how = kill_at(stops, [&] { write_in_place(new_file); });
    if (how == end::not_traced) return;
    const std::string found = read(path);
    others += found == old_file || found == new_file ? 0U : 1U;
    if (how == end::finished) break;
  }
  BOOST_TEST(others > 0U);
}

BOOST_AUTO_TEST_CASE(the_bytes_are_on_the_disk_before_the_name_and_the_name_at_the_end) {
  const folder here;
  const std::string path = (here.path / "net").string();
  const pg::host exec{pg::threads{1}};
  const classifier net{exec, pg::kaiming_uniform{1}};
  const std::string found = syncs_and_renames([&] { pg::save_parameters(net, path); });
  if (found.empty() && !std::filesystem::exists(path)) {
    BOOST_TEST_MESSAGE("ptrace is not allowed here: nobody was traced");
    return;
  }
  BOOST_TEST(found == "fsync rename fsync ");
}

// Whoever opens it while it is written keeps it open.
BOOST_AUTO_TEST_CASE(what_is_for_few_is_so_before_it_is_in_place) {
  const folder here;
  const std::string path = (here.path / "secret").string(), text = "of each record";
  const pergrad::detail::byte_stretch all[]{pergrad::detail::bytes_of(text)};
  const ::mode_t mask = ::umask(0);
  pergrad::detail::write_whole_file(path, all);
  BOOST_TEST(::chmod(path.c_str(), 0600) == 0);
  for (std::size_t stops = 0; stops < 1000; ++stops) {
    if (kill_at(stops, [&] { pergrad::detail::write_whole_file(path, all); }) != end::killed) break;
  }
  ::umask(mask);
  for (const auto& entry : std::filesystem::directory_iterator{here.path}) {
    using enum std::filesystem::perms;
    BOOST_TEST(((entry.status().permissions() & (group_all | others_all)) == none));
  }
}
BOOST_AUTO_TEST_CASE(a_file_stays_its_groups_or_becomes_nobody_elses) {
  const folder here;
  const std::string path = (here.path / "shared").string(), text = "for one group";
  const pergrad::detail::byte_stretch all[]{pergrad::detail::bytes_of(text)};
  const auto save = [&] { pergrad::detail::write_whole_file(path, all); };
  const ::gid_t other = ::getegid() + 1;
  save();
  if (::chown(path.c_str(), static_cast<::uid_t>(-1), other) != 0) {
    BOOST_TEST_MESSAGE("this user cannot give a file to another group: nothing was looked at");
    return;
  }
  const auto has = [&](::mode_t mode, ::gid_t group) {
    struct stat facts {};
    BOOST_TEST(::stat(path.c_str(), &facts) == 0);
    BOOST_TEST((facts.st_mode & 07777U) == mode);
    BOOST_TEST(facts.st_gid == group);
  };
  BOOST_TEST(::chmod(path.c_str(), 0640) == 0);
  save();
  has(0640, other);
  for (const auto& [before, after] :
       std::vector<std::pair<::mode_t, ::mode_t>>{{0640, 0600}, {0604, 0600}, {0664, 0644}}) {
    BOOST_TEST(::chown(path.c_str(), static_cast<::uid_t>(-1), other) == 0);
    BOOST_TEST(::chmod(path.c_str(), before) == 0);
    if (with_failing({SYS_fchown}, save) == "not allowed") return;
    has(after, ::getegid());
  }
}

BOOST_AUTO_TEST_CASE(a_system_that_fails_leaves_the_old_file_and_nothing_else) {
  const folder here;
  const std::string path = (here.path / "net").string();
  const pg::host exec{pg::threads{1}};
  const classifier before{exec, pg::kaiming_uniform{1}}, after{exec, pg::kaiming_uniform{2}};
  pg::save_parameters(before, path);
  const std::string old_file = read(path);
  const auto fails = [&](const std::set<long>& calls, const std::string& what) {
    const std::string said = with_failing(calls, [&] { pg::save_parameters(after, path); });
    if (said == "not allowed") {
      BOOST_TEST_MESSAGE("seccomp is not allowed here: nothing failed");
      return;
    }
    BOOST_TEST(said == "pergrad: " + path + ": " + what + ": Input/output error");
    BOOST_TEST((read(path) == old_file));
    BOOST_TEST(here.others(path) == 0U);
  };
  fails({SYS_fsync}, "cannot be written to the disk");
  std::set<long> renames{SYS_renameat2, SYS_renameat};
#ifdef SYS_rename
  renames.insert(SYS_rename);
#endif
  fails(renames, "cannot be put in place");
  fails({SYS_fchmod}, "cannot be written");
  BOOST_TEST(with_failing({}, [&] { pg::save_parameters(after, path); }).empty());
  BOOST_TEST((read(path) != old_file));
}

BOOST_AUTO_TEST_SUITE_END()

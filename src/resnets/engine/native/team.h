// A team of threads that share the work of a call.
//
// OpenMP's teams meet at a barrier: where another program has taken a core, everybody waits for the thread that lost it,
// whether it has work or not. Here the caller waits for shares that were taken, not for threads. If a share does not come
// for a while, the caller sleeps, so that its core is free for the thread that has the share.

#pragma once

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace {

// A thread of its own for `work`, which never ends. False: the system gives none.
template <typename Work>
bool start_thread(Work work) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // signals go to the threads of Python
    bool started = true;
    try {
        std::thread(std::move(work)).detach();
    } catch (const std::system_error&) {
        started = false;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return started;
}

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

class Team {
  public:
    // work(share) for all shares, by this thread and up to threads - 1 others; done when it returns.
    template <typename Work>
    static void run(int64_t threads, int64_t shares, Work& work) {
        std::unique_lock<std::mutex> alone(team()->busy, std::defer_lock);
        if (threads < 2 || shares < 2 || !alone.try_lock()) {  // busy with the call of another thread
            for (int64_t share = 0; share < shares; share++) work(share);
            return;
        }
        team()->share_out(threads, shares, [](void* of, int64_t share) { (*static_cast<Work*>(of))(share); }, &work);
    }

  private:
    using Call = void (*)(void*, int64_t);
    using Clock = std::chrono::steady_clock;
    static constexpr int SPIN = 8000;  // turns of waiting, some 50 microseconds, before a thread gives up its core

    std::mutex busy, sleep;
    std::condition_variable wake_helpers, wake_caller;
    int64_t helpers = 0;
    // The job: its number and its next share in one word, so that nobody takes a share of a job that has ended.
    std::atomic<uint64_t> ticket{0};
    std::atomic<int64_t> shares{0}, done{0}, open_to{0};
    std::atomic<int> sleepers{0};
    std::atomic<bool> caller_sleeps{false};
    std::atomic<Call> call{nullptr};
    std::atomic<void*> work{nullptr};

    // A fork has the caller's thread alone, so the child needs a team of its own.
    static Team*& team() {
        static Team* one = [] {
            pthread_atfork(nullptr, nullptr, [] { team() = new Team; });
            return new Team;
        }();
        return one;  // never destroyed: its threads may wait in it while the process ends
    }

    // One share, if there is one left of the job of this ticket or of a later one.
    bool take() {
        uint64_t seen = ticket.load();
        while (int64_t(uint32_t(seen)) < shares.load())
            if (ticket.compare_exchange_weak(seen, seen + 1)) {
                call.load()(work.load(), uint32_t(seen));
                if (done.fetch_add(1) + 1 == shares.load() && caller_sleeps) {
                    std::lock_guard<std::mutex> lock(sleep);
                    wake_caller.notify_one();
                }
                return true;
            }
        return false;
    }

    bool has_work(int64_t helper) const {
        return helper < open_to.load() &&
               int64_t(uint32_t(ticket.load())) < shares.load();
    }

    void help(int64_t helper) {
        for (;;) {
            for (int i = 0; i < SPIN && !has_work(helper); i++) relax();
            if (has_work(helper)) {
                take();
                continue;
            }
            std::unique_lock<std::mutex> lock(sleep);
            sleepers++;
            wake_helpers.wait(lock, [&] { return has_work(helper); });
            sleepers--;
        }
    }

    void share_out(int64_t wanted, int64_t count, Call what, void* of) {
        while (helpers < wanted - 1 && start_thread([this, helper = helpers] { help(helper); })) helpers++;
        const uint64_t number = (ticket.load() >> 32) + 1;
        shares = 0;  // nobody takes anything while the job is written
        call = what, work = of, done = 0, open_to = wanted - 1;
        ticket.store(number << 32);
        shares.store(count);
        if (sleepers) {
            std::lock_guard<std::mutex> lock(sleep);
            wake_helpers.notify_all();
        }
        const auto began = Clock::now();
        int64_t own = 1;
        while (take()) own++;
        // A share that takes more than twice as long as one of the caller's is held by a thread that lost its core.
        const auto now = Clock::now(), late = now + 2 * (now - began) / own + std::chrono::microseconds(20);
        while (done.load() < count && Clock::now() < late)
            for (int i = 0; i < 50; i++) relax();
        if (done.load() < count) wait_for(count);
        shares = 0;
    }

    void wait_for(int64_t count) {
        std::unique_lock<std::mutex> lock(sleep);
        caller_sleeps = true;
        wake_caller.wait(lock, [&] { return done.load() >= count; });
        caller_sleeps = false;
    }
};

}  // namespace

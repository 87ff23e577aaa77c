//! Files moved from one process to another over loopback, by the methods of either end: the cells of a published study.
//!
//! It shows which method of which end decides, what a connection for each file costs, and whether a window matters. It must not be
//! used to predict a transfer between two hosts, or one that is encrypted and verified.

use kelvin_core::catalogue::transfer::{
    CACHED_METRICS, RATE, RECEIVER_CALLS, RECEIVER_CPU, RECEIVER_DEVICE, RECEIVER_FAULTS, RECEIVER_SWITCHES,
    SENDER_CALLS, SENDER_CPU, SENDER_DEVICE, SENDER_FAULTS, SENDER_SWITCHES, TIME,
};
use kelvin_file::cache::PageCacheState;

use super::cells;
use super::prediction;
use super::trials::{TransferTrial, run_trials};
use crate::prelude::*;

pub(crate) static PROBE: Probe = Probe {
    summary: "Files moved between two processes over loopback: the cells of a published study, and other methods and modes",
    method: Method {
        how: "Three sets of noise, of the published sizes: 10 files, 24,114 B together (four of 2412 B, six of 2411 B); 1 \
              file of 12,022,885 B; 2 files of 182,172,254 B each. A sender and a receiver, two processes on two CPUs, \
              move a set over TCP on loopback: for each file a header of 24 bytes, its name and its bytes, neither \
              encrypted nor verified. Congestion control is cubic where the kernel grants it, else reno, and for ends in the \
              kernel the system's. The method rw moves so many bytes of a buffer by a call (512 as published), mmap a \
              whole window of pages; nothing is read ahead of the pages that the receiver writes (MADV_RANDOM). The files are in memory; the targets are new files in a directory of the \
              round, which lies in a place of its own on the disk (see file.metadata), removed after each trial. The clock runs from before the sender connects until the receiver has written \
              the last byte of the last file and cut it to its size, on a clock that both processes read. After each \
              trial, outside of the clock, every byte that arrived is compared by its BLAKE3 digest. A round is two \
              fresh processes, an untimed transfer of the small set, and 5 trials (1 of the large set); the rounds of \
              all cells are interleaved in random order, those of a set next to each other; cells of a set are compared within each \
              pass, where what the machine does for seconds at a time cancels. Intervals hold the figure of a repeat of the run: until the store \
              has three earlier ones, which show the spread between runs, they are twice as wide as rounds without a \
              common cause would make them, since how fast a sleeping CPU is woken changes for seconds at a time. Beside the time: CPU time, system calls that move bytes, map or \
              wait, page faults, context switches and device bytes of either end, with those of the kernel's threads that \
              work for its ring. The window is of no use to rw at both ends: those \
              cells are a control. Unless the study is quick, two more groups follow. The same ends with as many bytes a call by \
              either method: 64 KiB against windows of 16 pages, 1 MiB against 256. And around the cell of read/write in \
              buffers of 64 KiB over one connection, one other factor at a time: a connection for each file; a reply to each \
              file before the next; epoll, signals and a ring in place of calls that block; sendfile, splice, MSG_ZEROCOPY \
              and a ring at the sender; splice and a ring at the receiver. Where kelvin's kernel module is loaded, the published cells are \
              measured with both ends in the kernel too, as they were: kernel-rw writes and reads a device by calls of 512 bytes, \
              kernel-mmap copies between the mapped file and a window of the device; and, in the mode fasync, with O_ASYNC set on \
              these sockets, whose calls block all the same: what was published as asynchronous. The files are in memory; transfer.cold has those \
              that are not.",
        prediction: "Time, rate and CPU time, from what each step costs by itself. Each end makes its calls one after another; \
                     both work at the same time, and the longer of the two counts. The sender, for each file: opening it \
                     (file.metadata.open), a packet through the stack (net.stack.tcp), and for each buffer a read \
                     (file.engines, pread) and a send (net.stream.tcp), or for each window a mapping (os.syscall.mmap_munmap), \
                     a fault for 16 pages (mem.fault.minor) and a send of bytes that come from memory (file.engines, mmap). \
                     The receiver: receiving (net.stream.tcp.receive) and making the file (file.new) by blocks or through \
                     a mapping, smaller windows at what they add there. Each copy into or out of the socket waits for one cache line of the \
                     other CPU (mem.core_to_core); the others arrive 10 at a time. Where the sender is slower, the receiver \
                     sleeps after each segment of 65,483 bytes, and the sender pays for waking it (net.wake.tcp). To that \
                     come connecting, waking the receiver (os.switch.cross_cpu), clearing the buffers of either end \
                     (mem.fault.minor), one segment at the other end, a connection for each file (net.connect, net.close, \
                     on one CPU), and a round trip (net.rtt.tcp) for each reply. What is sent without a copy is copied when it \
                     arrives over loopback (net.bandwidth.tcp.way), which counts at the receiver. Predicted range: a factor of 1.35 \
                     either way. A factor of two: transfers shorter than a millisecond, whose steps are mostly first ones that \
                     no cache holds, and CPU times; and methods that are predicted by what is most like them: by reference \
                     (net.bandwidth.tcp.way), and by a ring, by what that adds to a read in file.engines - making one, and the \
                     worker that it passes writes to, are in no lower metric. A receiver with buffers of 64 KiB took 1.15 to 1.4 times as \
                     long as predicted, one with 1 MiB did not: that is not explained. Calls follow from the method: those of the sender exactly; the receiver may make one or two more for \
                     each segment. Faults of mappings: one for each window or each 16 pages of it at the sender, one for \
                     each page or fewer at the receiver. Cells with ends in the kernel have none. Switches and device bytes have no prediction.",
        not_for: "Transfers between two hosts, where the link decides; `kelvin send`, which verifies and encrypts; \
                  comparison with the published times as equals: those ends were in the kernel of a virtual machine, as only the cells \
                  with ends in the kernel are, and read/write there copied once more than here.",
        pitfalls: &[
            "Bytes a call confounded with the method: 512 bytes of rw against a whole window of mmap, as published. \
             Cells with buffers of 64 KiB and 1 MiB, which is a window of 256 pages, separate the two.",
            "Targets that are written back meanwhile: they are removed at once; bytes that have reached the device \
             nevertheless count against --write-limit.",
            "The page faults of a file system taken for the cost of mmap: the same study with --dir on tmpfs tells them apart. Reading \
             ahead of pages that are written for the first time, ext4 took up to eight times as long for each of them (file.new).",
            "A congestion control that paces (BBR): a timer for most segments, some 30 us of CPU time each in the virtual machine \
             where this was found. A transfer by sendfile took twice as long, and whichever end was busier paid.",
            "Inodes of removed targets: ext4 without a journal looks at each for minutes, and ten small files took three times \
             as long when a study had removed thousands. Each round has a block group of its own.",
            "A fixed cost taken for one of bytes: ten small files, one file and two large ones.",
            "Ports in TIME_WAIT after a connection for each file: some 12,000 in a whole study, of 28,000.",
        ],
        sources: &[
            "the study kernel-transfer-2020: its data sets, cells and clock",
            "tcp(7), mmap(2); Linux net/ipv4/tcp.c, mm/filemap.c",
            "Linux net/ipv4/tcp_output.c: tcp_update_skb_after_send; net/core/dev.c: skb_orphan_frags_rx; fs/ext4/ialloc.c: \
             recently_deleted",
        ],
    },
    cases: |_, effort| cells::hot_cells(effort),
    run,
    predict: prediction::predict,
    ..Probe::study(CACHED_METRICS)
};

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), ProbeError> {
    let (trials, bytes) = run_trials(bench, case, PageCacheState::Cached)?;
    for (metric, figure) in FIGURES {
        bench.record(metric, trials.iter().map(figure).collect());
    }
    bench.record(&RATE, trials.iter().map(|trial| bytes as f64 * 1e9 / trial.time).collect());
    bench.note_last_reading("every trial's bytes were compared by their digest");
    Ok(())
}

/// A figure of a trial, in the unit of its metric.
type TrialFigure = fn(&TransferTrial) -> f64;

static FIGURES: [(&Metric, TrialFigure); 11] = [
    (&TIME, |trial| trial.time),
    (&SENDER_CPU, |trial| trial.sender.cpu as f64),
    (&RECEIVER_CPU, |trial| trial.receiver.cpu as f64),
    (&SENDER_CALLS, |trial| trial.sender.calls as f64),
    (&RECEIVER_CALLS, |trial| trial.receiver.calls as f64),
    (&SENDER_FAULTS, |trial| trial.sender.faults as f64),
    (&RECEIVER_FAULTS, |trial| trial.receiver.faults as f64),
    (&SENDER_SWITCHES, |trial| trial.sender.switches as f64),
    (&RECEIVER_SWITCHES, |trial| trial.receiver.switches as f64),
    (&SENDER_DEVICE, |trial| trial.fetched as f64),
    (&RECEIVER_DEVICE, |trial| trial.written as f64),
];

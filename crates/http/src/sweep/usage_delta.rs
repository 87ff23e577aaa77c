//! What one end has used between two looks.

use kelvin_core::resources::{DiskStats, ResourceSnapshot, ServerStats};

/// Looks at the same end.
#[derive(Clone, Debug)]
pub(crate) struct UsageDelta {
    /// Before the first request of the warm-up.
    before: ResourceSnapshot,
    /// When the time that counts begins.
    from: ResourceSnapshot,
    /// When it ends.
    pub to: ResourceSnapshot,
}

/// What the devices below the files did, a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct DiskUse {
    pub reads: f64,
    pub read_bytes: f64,
    pub writes: f64,
    pub written_bytes: f64,
    /// Share of the time in which the busiest had work.
    pub busy: f64,
    /// Reads for the server's control group where it has one, else for whomever.
    pub own_reads: f64,
}

/// What a server did by its own count, a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ServerUse {
    /// Bytes of bodies that arrived: those that were handed to the kernel, less those that the clients' had not acknowledged.
    pub bytes: f64,
    /// Requests in flight, on average.
    pub in_flight: f64,
    /// How often that was looked at.
    pub samples: u64,
    /// Share of its workers that served a connection, where it bounds them.
    pub workers: Option<f64>,
    /// How many it has.
    pub bound: Option<u32>,
    /// Share of the time of requests in flight in which the client's receive window was full.
    pub window: Option<f64>,
    /// Share of the time of requests in flight in which an answer was being sent and neither the client's window nor the send buffer kept
    /// it: it was up to the network.
    pub in_network: Option<f64>,
    /// Connections that wait to be accepted.
    pub accept_queue: f64,
    /// Its threads in uninterruptible sleep.
    pub blocked: f64,
    /// How much of the time the thread that takes samples had no CPU.
    pub sampling_without_cpu: Option<f64>,
}

impl UsageDelta {
    /// Between the last two looks, the earlier first.
    pub fn between([before, from, to]: [ResourceSnapshot; 3]) -> Self {
        Self { before, from, to }
    }

    /// How much a counter has grown.
    pub fn growth(&self, counter: impl Fn(&ResourceSnapshot) -> f64) -> f64 {
        (counter(&self.to) - counter(&self.from)).max(0.0)
    }

    /// How much a counter has grown a second that not every host has.
    pub fn rate(&self, counter: impl Fn(&ResourceSnapshot) -> Option<u64>) -> Option<f64> {
        let (from, to) = (counter(&self.from).unwrap_or_default(), counter(&self.to)?);
        Some(to.saturating_sub(from) as f64 / self.seconds())
    }

    /// The mean of a counter of nanoseconds that not every host has.
    pub fn mean_share(&self, counter: impl Fn(&ResourceSnapshot) -> Option<f64>) -> Option<f64> {
        Some((counter(&self.to)? - counter(&self.from)?).max(0.0) / self.nanoseconds())
    }

    /// How much a counter has grown with the warm-up.
    pub fn growth_with_warm_up(&self, counter: impl Fn(&ResourceSnapshot) -> u64) -> f64 {
        counter(&self.to).saturating_sub(counter(&self.before)) as f64
    }

    /// A figure of the moment: the mean of when the time that counts begins and when it ends.
    pub fn edge_mean(&self, figure: impl Fn(&ResourceSnapshot) -> f64) -> f64 {
        f64::midpoint(figure(&self.from), figure(&self.to))
    }

    /// Nanoseconds between them.
    fn nanoseconds(&self) -> f64 {
        (self.to.at - self.from.at).max(1.0)
    }

    fn seconds(&self) -> f64 {
        self.nanoseconds() / 1e9
    }

    /// CPUs that the process kept busy.
    pub fn busy_cpus(&self) -> f64 {
        let in_ticks = |look: &ResourceSnapshot| look.process.user + look.process.system;
        let exact: f64 = self.thread_cpu_times().sum();
        let used =
            if self.to.process.thread_cpu.is_empty() { in_ticks(&self.to) - in_ticks(&self.from) } else { exact };
        used.max(0.0) / self.nanoseconds()
    }

    /// Share of one CPU that its busiest thread used.
    pub fn busiest_thread(&self) -> f64 {
        self.thread_cpu_times().fold(0.0, f64::max) / self.nanoseconds()
    }

    /// Nanoseconds of CPU time of each thread.
    fn thread_cpu_times(&self) -> impl Iterator<Item = f64> {
        let before = |thread: &u32| self.from.process.thread_cpu.get(thread).copied().unwrap_or_default();
        self.to.process.thread_cpu.iter().map(move |(thread, now)| now - before(thread))
    }

    /// Bytes a second that were read from devices for the process; those of all devices below the files where the kernel does not tell.
    pub fn disk_read_rate(&self) -> Option<f64> {
        let own = self.from.process.read_bytes.and_then(|_| self.rate(|look| look.process.read_bytes));
        own.or_else(|| self.disk_use().map(|disk| disk.read_bytes))
    }

    /// Bytes a second that the process wrote to files, where the kernel counts them.
    pub fn write_rate(&self) -> Option<f64> {
        self.from.process.written_bytes?;
        self.rate(|look| look.process.written_bytes)
    }

    /// What the devices below the files did together; the busiest decides how busy they were.
    pub fn disk_use(&self) -> Option<DiskUse> {
        // One that is missing in the earlier look had done nothing.
        let nothing = DiskStats::default();
        let before = |name: &str| self.from.disks.iter().find(|disk| disk.name == name).unwrap_or(&nothing);
        let pairs = self.to.disks.iter().filter(|disk| disk.holds_root).map(|to| (before(&to.name), to));
        let mut disk: Option<DiskUse> = None;
        for (from, to) in pairs {
            let since =
                |counter: fn(&DiskStats) -> u64| counter(to).saturating_sub(counter(from)) as f64 / self.seconds();
            let sum = disk.unwrap_or_default();
            disk = Some(DiskUse {
                reads: sum.reads + since(|disk| disk.reads),
                read_bytes: sum.read_bytes + since(|disk| disk.read_bytes),
                writes: sum.writes + since(|disk| disk.writes),
                written_bytes: sum.written_bytes + since(|disk| disk.written_bytes),
                busy: sum.busy.max((to.busy - from.busy).max(0.0) / self.nanoseconds()),
                own_reads: sum.own_reads + since(|disk| disk.reads_of_group.unwrap_or(disk.reads)),
            });
        }
        disk
    }

    /// The interface other than loopback that sent most.
    pub fn busiest_link(&self) -> Option<String> {
        let links = self.to.links.iter().filter(|link| !link.is_loopback);
        let rates = links.filter_map(|link| Some((self.link_send_rate(&link.name)?, link)));
        let busiest = rates.max_by(|(first, _), (second, _)| first.total_cmp(second));
        busiest.map(|(_, link)| link.name.clone())
    }

    /// Bytes a second that an interface sent, headers included.
    pub fn link_send_rate(&self, interface: &str) -> Option<f64> {
        let sent_bytes =
            |look: &ResourceSnapshot| look.links.iter().find(|link| link.name == interface).map(|link| link.sent_bytes);
        Some(sent_bytes(&self.to)?.saturating_sub(sent_bytes(&self.from)?) as f64 / self.seconds())
    }

    /// Bytes a second that an interface has by a rate of its own: its device's, or that to which it is shaped, whichever is less. A
    /// loopback or virtual interface without shaping has none: what it carries is what the CPUs give.
    pub fn link_rate(&self, interface: &str) -> Option<f64> {
        let link = self.to.links.iter().find(|link| link.name == interface)?;
        let bits = [link.speed, link.shaped].into_iter().flatten().min()?;
        Some(bits as f64 / 8.0)
    }

    /// What the server itself counted, if it is one that does.
    pub fn server_use(&self) -> Option<ServerUse> {
        let (from, to) = (self.from.server.as_ref()?, self.to.server.as_ref()?);
        let since = |counter: fn(&ServerStats) -> f64| (counter(to) - counter(from)).max(0.0);
        let in_flight = since(|server| server.in_flight);
        // Time for which answers were up to the network.
        let network_time = since(|server| server.sending - server.window_limited - server.send_buffer_limited);
        let without_cpu = to.sampling_without_cpu.zip(from.sampling_without_cpu);
        // By the server's own time: between the rest of a look and what it knows itself it may have waited for a CPU.
        let time = (to.at - from.at).max(1.0);
        Some(ServerUse {
            bytes: since(|server| server.bytes as f64 - server.unacknowledged as f64) * 1e9 / time,
            in_flight: in_flight / time,
            samples: to.samples.saturating_sub(from.samples),
            workers: to.workers.map(|workers| since(|server| server.held_integral) / (f64::from(workers) * time)),
            bound: to.workers,
            window: share(since(|server| server.window_limited), in_flight),
            in_network: share(network_time, in_flight),
            blocked: since(|server| server.blocked) / time,
            sampling_without_cpu: without_cpu.map(|(to, from)| (to - from).max(0.0) / time),
            accept_queue: f64::midpoint(f64::from(from.accept_queue.now), f64::from(to.accept_queue.now)),
        })
    }
}

/// A part of a whole, of which nothing is no part either; `None` of a part of nothing.
fn share(part: f64, whole: f64) -> Option<f64> {
    if part == 0.0 { Some(0.0) } else { (whole > 0.0).then(|| (part / whole).min(1.0)) }
}

#[cfg(test)]
mod tests {
    use kelvin_core::resources::ProcessStats;

    use super::*;

    /// A server after this many seconds, of requests that are in flight all the time.
    fn usage_sample(seconds: f64, served: impl FnOnce(f64) -> ServerStats) -> ResourceSnapshot {
        let time = seconds * 1e9;
        let process = ProcessStats { written_bytes: Some((4096.0 * seconds) as u64), ..ProcessStats::default() };
        let served = ServerStats { at: time, in_flight: 2.0 * time, ..served(time) };
        ResourceSnapshot { at: time, process, server: Some(served), ..ResourceSnapshot::default() }
    }

    #[test]
    fn network_time_excludes_window_and_buffer_limits() {
        let served = |time: f64| ServerStats {
            sending: 1.8 * time,
            window_limited: 0.5 * time,
            send_buffer_limited: 0.1 * time,
            ..ServerStats::default()
        };
        let used = UsageDelta::between([1.0, 2.0, 4.0].map(|seconds| usage_sample(seconds, served)));
        assert!((used.server_use().unwrap().in_network.unwrap() - 0.6).abs() < 1e-9);
        assert_eq!(used.write_rate(), Some(4096.0));
        // Of its threads a quarter of one is blocked.
        let blocked = |time: f64| ServerStats { blocked: 0.25 * time, ..served(time) };
        let used = UsageDelta::between([1.0, 2.0, 4.0].map(|seconds| usage_sample(seconds, blocked)));
        assert_eq!(used.server_use().unwrap().blocked, 0.25);
    }
}

//! What one end has used between two looks.

use kelvin_core::resources::{DiskStats, ResourceSnapshot, ServerStats};

/// Looks at the same end.
#[derive(Clone, Debug)]
pub(crate) struct UsageDelta {
    /// Before the first request of the warm-up.
    before: ResourceSnapshot,
    /// When the time that counts begins.
    start: ResourceSnapshot,
    /// When it ends.
    pub end: ResourceSnapshot,
}

impl UsageDelta {
    /// Between the last two looks, the earlier first.
    pub fn between([before, start, end]: [ResourceSnapshot; 3]) -> Self {
        Self { before, start, end }
    }

    /// How much a counter has grown.
    pub fn growth(&self, counter: impl Fn(&ResourceSnapshot) -> f64) -> f64 {
        (counter(&self.end) - counter(&self.start)).max(0.0)
    }

    /// How much a counter has grown a second that not every host has.
    pub fn rate(&self, counter: impl Fn(&ResourceSnapshot) -> Option<u64>) -> Option<f64> {
        let (start, end) = (counter(&self.start).unwrap_or_default(), counter(&self.end)?);
        Some(end.saturating_sub(start) as f64 / self.seconds())
    }

    /// The mean of a counter of nanoseconds that not every host has.
    pub fn mean_share(&self, counter: impl Fn(&ResourceSnapshot) -> Option<f64>) -> Option<f64> {
        Some((counter(&self.end)? - counter(&self.start)?).max(0.0) / self.nanoseconds())
    }

    /// How much a counter has grown with the warm-up.
    pub fn growth_with_warm_up(&self, counter: impl Fn(&ResourceSnapshot) -> u64) -> f64 {
        counter(&self.end).saturating_sub(counter(&self.before)) as f64
    }

    /// A figure of the moment: the mean of when the time that counts begins and when it ends.
    pub fn edge_mean(&self, figure: impl Fn(&ResourceSnapshot) -> Option<f64>) -> Option<f64> {
        Some(f64::midpoint(figure(&self.start)?, figure(&self.end)?))
    }

    /// Nanoseconds between them.
    fn nanoseconds(&self) -> f64 {
        (self.end.at - self.start.at).max(1.0)
    }

    fn seconds(&self) -> f64 {
        self.nanoseconds() / 1e9
    }

    /// CPUs that the process kept busy.
    pub fn busy_cpus(&self) -> f64 {
        let process_cpu_time = |snapshot: &ResourceSnapshot| snapshot.process.user + snapshot.process.system;
        let thread_time: f64 = self.thread_cpu_times().sum();
        let cpu_time = if self.end.process.thread_cpu.is_empty() {
            process_cpu_time(&self.end) - process_cpu_time(&self.start)
        } else {
            thread_time
        };
        cpu_time.max(0.0) / self.nanoseconds()
    }

    /// Share of one CPU that its busiest thread used.
    pub fn busiest_thread(&self) -> f64 {
        self.thread_cpu_times().fold(0.0, f64::max) / self.nanoseconds()
    }

    /// Nanoseconds of CPU time of each thread.
    fn thread_cpu_times(&self) -> impl Iterator<Item = f64> {
        let before = |thread: &u32| self.start.process.thread_cpu.get(thread).copied().unwrap_or_default();
        self.end.process.thread_cpu.iter().map(move |(thread, time)| time - before(thread))
    }

    /// Bytes a second that were read from devices for the process; those of all devices below the files where the kernel does not count them.
    pub fn disk_read_rate(&self) -> Option<f64> {
        let process_rate =
            self.start.process.read_bytes.and_then(|_| self.rate(|snapshot| snapshot.process.read_bytes));
        process_rate.or_else(|| self.disk_rate(|disk| disk.read_bytes))
    }

    /// Bytes a second that the process wrote to files, where the kernel counts them.
    pub fn write_rate(&self) -> Option<f64> {
        self.start.process.written_bytes?;
        self.rate(|snapshot| snapshot.process.written_bytes)
    }

    /// How much a counter of the devices below the files has grown a second, of all of them together. One that is missing in the earlier
    /// look had done nothing.
    pub fn disk_rate(&self, counter: fn(&DiskStats) -> u64) -> Option<f64> {
        let growth =
            |current: &DiskStats| counter(current).saturating_sub(self.disk_before(current).map_or(0, counter));
        self.root_disks().map(|disk| growth(disk) as f64 / self.seconds()).reduce(|sum, rate| sum + rate)
    }

    /// Share of the time in which the busiest of these devices had work.
    pub fn disk_busy(&self) -> Option<f64> {
        let growth = |current: &DiskStats| current.busy - self.disk_before(current).map_or(0.0, |disk| disk.busy);
        self.root_disks().map(|disk| growth(disk).max(0.0) / self.nanoseconds()).reduce(f64::max)
    }

    fn root_disks(&self) -> impl Iterator<Item = &DiskStats> {
        self.end.disks.iter().filter(|disk| disk.holds_root)
    }

    fn disk_before(&self, current: &DiskStats) -> Option<&DiskStats> {
        self.start.disks.iter().find(|disk| disk.name == current.name)
    }

    /// The interface other than loopback that sent most.
    pub fn busiest_link(&self) -> Option<String> {
        let links = self.end.links.iter().filter(|link| !link.is_loopback);
        let rates = links.filter_map(|link| Some((self.link_send_rate(&link.name)?, link)));
        let busiest = rates.max_by(|(first, _), (second, _)| first.total_cmp(second));
        busiest.map(|(_, link)| link.name.clone())
    }

    /// Bytes a second that an interface sent, headers included.
    pub fn link_send_rate(&self, interface: &str) -> Option<f64> {
        let sent_bytes = |snapshot: &ResourceSnapshot| {
            snapshot.links.iter().find(|link| link.name == interface).map(|link| link.sent_bytes)
        };
        Some(sent_bytes(&self.end)?.saturating_sub(sent_bytes(&self.start)?) as f64 / self.seconds())
    }

    /// Bytes a second that an interface has by a rate of its own: its device's, or that to which it is shaped, whichever is less. A
    /// loopback or virtual interface without shaping has none: what it carries is what the CPUs give.
    pub fn link_rate(&self, interface: &str) -> Option<f64> {
        let link = self.end.links.iter().find(|link| link.name == interface)?;
        let bits = [link.speed, link.shaped].into_iter().flatten().min()?;
        Some(bits as f64 / 8.0)
    }

    /// The mean over time of what a counter of the server itself adds up, if it is a server that counts. The time is the server's own:
    /// between the rest of a look and what it knows itself it may have waited for a CPU.
    pub fn server_mean(&self, counter: impl Fn(&ServerStats) -> Option<f64>) -> Option<f64> {
        let (start, end) = (self.start.server.as_ref()?, self.end.server.as_ref()?);
        Some((counter(end)? - counter(start)?).max(0.0) / (end.at - start.at).max(1.0))
    }

    /// The share that a counter of the server has of the time of requests in flight. Nothing is no part of nothing either.
    pub fn share_of_in_flight(&self, counter: fn(&ServerStats) -> f64) -> Option<f64> {
        let counter_mean = self.server_mean(|server| Some(counter(server)))?;
        let in_flight_mean = self.server_mean(|server| Some(server.in_flight))?;
        if counter_mean == 0.0 {
            Some(0.0)
        } else {
            (in_flight_mean > 0.0).then(|| (counter_mean / in_flight_mean).min(1.0))
        }
    }
}

#[cfg(test)]
mod tests {
    use kelvin_core::resources::ProcessStats;

    use super::*;
    use crate::sweep::readings::network_time;

    /// A server after this many seconds, of requests that are in flight all the time.
    fn usage_sample(seconds: f64, server_stats: impl FnOnce(f64) -> ServerStats) -> ResourceSnapshot {
        let time = seconds * 1e9;
        let process = ProcessStats { written_bytes: Some((4096.0 * seconds) as u64), ..ProcessStats::default() };
        let stats = ServerStats { at: time, in_flight: 2.0 * time, ..server_stats(time) };
        ResourceSnapshot { at: time, process, server: Some(stats), ..ResourceSnapshot::default() }
    }

    #[test]
    fn network_time_excludes_window_and_buffer_limits() {
        let stats_at_time = |time: f64| ServerStats {
            sending: 1.8 * time,
            window_limited: 0.5 * time,
            send_buffer_limited: 0.1 * time,
            ..ServerStats::default()
        };
        let delta = UsageDelta::between([1.0, 2.0, 4.0].map(|seconds| usage_sample(seconds, stats_at_time)));
        assert!((delta.share_of_in_flight(network_time).unwrap() - 0.6).abs() < 1e-9);
        assert_eq!(delta.write_rate(), Some(4096.0));
        // Of its threads a quarter of one is blocked.
        let blocked = |time: f64| ServerStats { blocked: 0.25 * time, ..stats_at_time(time) };
        let delta = UsageDelta::between([1.0, 2.0, 4.0].map(|seconds| usage_sample(seconds, blocked)));
        assert_eq!(delta.server_mean(|server| Some(server.blocked)), Some(0.25));
    }
}

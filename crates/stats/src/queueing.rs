//! Closed queueing networks of one class: asymptotic bounds, and throughput and response time by exact mean value analysis.
//!
//! E. D. Lazowska, J. Zahorjan, G. S. Graham, K. C. Sevcik, "Quantitative System Performance", Prentice Hall 1984, chapters 5 and
//! 6; M. Reiser, S. S. Lavenberg, "Mean-Value Analysis of Closed Multichain Queuing Networks", Journal of the ACM 27(2), 1980;
//! J. P. Buzen, "Computational Algorithms for Closed Queueing Networks with Exponential Servers", Communications of the ACM
//! 16(9), 1973. Exact where the network has a product form: service times that are exponential, or shared by turns.

use std::num::NonZeroU32;

/// Where a request is served on its way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Station {
    /// Service that a request needs here in all its visits, in units of time.
    pub demand: f64,
    /// How requests are served.
    pub service: Service,
}

/// How a station serves requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// By this many equal servers, for which requests wait in one queue.
    Queue(NonZeroU32),
    /// All at once: the time passes for each without a wait.
    Delay,
}

impl Station {
    /// A single server with a queue.
    pub const fn queue(demand: f64) -> Self {
        Self { demand, service: Service::Queue(NonZeroU32::MIN) }
    }

    /// Several servers with one queue.
    pub const fn servers(demand: f64, servers: NonZeroU32) -> Self {
        Self { demand, service: Service::Queue(servers) }
    }

    /// A time without a wait.
    pub const fn delay(demand: f64) -> Self {
        Self { demand, service: Service::Delay }
    }

    /// The least time between two completions here on average; nothing for a delay.
    fn min_departure_interval(&self) -> f64 {
        match self.service {
            Service::Queue(servers) => self.demand / f64::from(servers.get()),
            Service::Delay => 0.0,
        }
    }

    /// Share of its servers' time that a throughput uses; 0 for a delay, which has none.
    pub fn utilisation(&self, throughput: f64) -> f64 {
        throughput * self.min_departure_interval()
    }
}

/// Why stations are no network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// The station with this index has a demand that is no time.
    #[error("the demand at station {0} is negative or not finite")]
    InvalidDemand(usize),
    /// The think time is none.
    #[error("the think time is negative or not finite")]
    InvalidThinkTime,
    /// All demands are zero.
    #[error("no station demands any time; at least one must")]
    NoDemand,
}

/// A closed network: a fixed number of customers, each of which thinks, sends a request, waits for its answer, and so on.
#[derive(Clone, Debug, PartialEq)]
pub struct ClosedNetwork {
    stations: Vec<Station>,
    think_time: f64,
}

/// A part of a device, by what it gives alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DevicePart {
    /// Customers that it serves in a unit of time.
    pub capacity: f64,
    /// Customers that it serves at once.
    pub servers: NonZeroU32,
}

/// The whole number of servers that is nearest to a measured one, and at least one.
pub fn round_server_count(count: f64) -> NonZeroU32 {
    NonZeroU32::new(count.round() as u32).unwrap_or(NonZeroU32::MIN)
}

impl DevicePart {
    fn station(&self) -> Station {
        Station::servers(f64::from(self.servers.get()) / self.capacity, self.servers)
    }
}

/// A network with this many customers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MvaResult {
    /// Customers.
    pub customers: usize,
    /// Requests per unit of time.
    pub throughput: f64,
    /// Time of a request, without think time.
    pub response: f64,
}

/// The bounds by the demands alone of a network with this many customers (Lazowska et al., section 5.2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AsymptoticBounds {
    /// The throughput is at least this: every request waits for all others at every station.
    pub min_throughput: f64,
    /// It is at most this: nobody waits, or the bottleneck is always busy.
    pub max_throughput: f64,
    /// The response time is at least this.
    pub min_response: f64,
}

impl ClosedNetwork {
    /// A network of stations; the think time is no part of the response time.
    ///
    /// # Errors
    /// If a time is negative or not finite, or no station demands any.
    pub fn new(stations: Vec<Station>, think: f64) -> Result<Self, NetworkError> {
        let is_time = |time: f64| time.is_finite() && time >= 0.0;
        if let Some(index) = stations.iter().position(|station| !is_time(station.demand)) {
            return Err(NetworkError::InvalidDemand(index));
        }
        if !is_time(think) {
            return Err(NetworkError::InvalidThinkTime);
        }
        let network = Self { stations, think_time: think };
        if network.demand() > 0.0 { Ok(network) } else { Err(NetworkError::NoDemand) }
    }

    /// A network of one station for each group of parts that work at the same time for one request, so that the slowest decides: the
    /// bytes that a disk reads and the requests that it serves.
    ///
    /// # Errors
    /// If there is no part, or a capacity is not above zero.
    pub fn from_slowest_parts<G: PartialEq>(
        parts: impl IntoIterator<Item = (G, DevicePart)>,
        think: f64,
    ) -> Result<Self, NetworkError> {
        let mut slowest: Vec<(G, DevicePart)> = Vec::new();
        for (group, part) in parts {
            match slowest.iter_mut().find(|(slowest_group, _)| *slowest_group == group) {
                Some((_, slowest_part)) if slowest_part.capacity <= part.capacity => {}
                Some((_, slowest_part)) => *slowest_part = part,
                None => slowest.push((group, part)),
            }
        }
        Self::new(slowest.iter().map(|(_, part)| part.station()).collect(), think)
    }

    /// The stations.
    pub fn stations(&self) -> &[Station] {
        &self.stations
    }

    /// Think time.
    pub fn think_time(&self) -> f64 {
        self.think_time
    }

    /// All service that a request needs: its response time when nobody else is there.
    pub fn demand(&self) -> f64 {
        self.stations.iter().map(|station| station.demand).sum()
    }

    /// The throughput that no number of customers exceeds, 1 / D_max; infinite without a station that queues.
    pub fn capacity(&self) -> f64 {
        1.0 / self.stations.iter().map(Station::min_departure_interval).fold(0.0, f64::max)
    }

    /// The number of customers where the bounds cross, N* = (D + Z) / D_max: with more, some must wait.
    pub fn saturation_point(&self) -> f64 {
        (self.demand() + self.think_time) * self.capacity()
    }

    /// The bounds with this many customers.
    pub fn bounds(&self, customers: usize) -> AsymptoticBounds {
        let n = customers as f64;
        AsymptoticBounds {
            min_throughput: n / (n * self.demand() + self.think_time),
            max_throughput: self.capacity().min(n / (self.demand() + self.think_time)),
            min_response: self.demand().max(n / self.capacity() - self.think_time),
        }
    }

    /// Throughput and response time with 1 to this many customers.
    ///
    /// Stations of one server and delays by mean value analysis: R_k(n) = D_k (1 + Q_k(n - 1)), X(n) = n / (Z + sum R_k(n)),
    /// Q_k(n) = X(n) R_k(n). Its form for several servers loses all digits to cancellation as they fill up (G. Casale,
    /// "Conditional mean value analysis", 2008), so those are joined by Buzen's convolution, whose terms are all positive:
    /// X(n) = G(n - 1) / G(n). Both are exact.
    pub fn solve(&self, max_customers: usize) -> Vec<MvaResult> {
        let multi_servers: Vec<(f64, u32)> = self.multi_server_stations().collect();
        let mut constants = self.single_server_constants(max_customers);
        for &station in &multi_servers {
            constants = convolve(&constants, &multi_server_constants(station, max_customers));
        }
        let population = |customers: usize| {
            let throughput = (constants[customers - 1] - constants[customers]).exp();
            // Rounding alone could leave a time shorter than all service.
            let response = (customers as f64 / throughput - self.think_time).max(self.demand());
            MvaResult { customers, throughput, response }
        };
        (1..=max_customers).map(population).collect()
    }

    /// The least number of customers, up to this many, with this throughput.
    pub fn min_customers_for(&self, throughput: f64, max_customers: usize) -> Option<usize> {
        // Of a network that is one station, the throughput equals its capacity but for rounding.
        let min_throughput = throughput * (1.0 - 1e-12);
        self.solve(max_customers)
            .iter()
            .find(|population| population.throughput >= min_throughput)
            .map(|population| population.customers)
    }

    fn multi_server_stations(&self) -> impl Iterator<Item = (f64, u32)> {
        self.stations.iter().filter_map(|station| match station.service {
            Service::Queue(servers) if servers.get() > 1 && station.demand > 0.0 => {
                Some((station.demand, servers.get()))
            }
            _ => None,
        })
    }

    /// Logarithms of the normalising constants G(0) to G(`max_customers`) of think time, delays and stations of one server.
    fn single_server_constants(&self, max_customers: usize) -> Vec<f64> {
        let is_single = |station: &&Station| station.service == Service::Queue(NonZeroU32::MIN) && station.demand > 0.0;
        let delays = self.stations.iter().filter(|station| station.service == Service::Delay);
        let delay = self.think_time + delays.map(|station| station.demand).sum::<f64>();
        let mut queues: Vec<(f64, f64)> =
            self.stations.iter().filter(is_single).map(|station| (station.demand, 0.0)).collect();
        let mut constants = vec![0.0];
        for customers in 1..=max_customers {
            let cycle = delay + queues.iter().map(|(demand, queue)| demand * (1.0 + queue)).sum::<f64>();
            // Nowhere to be: G(n) = 0.
            let throughput = if cycle > 0.0 { customers as f64 / cycle } else { f64::INFINITY };
            queues.iter_mut().for_each(|(demand, queue)| *queue = throughput * *demand * (1.0 + *queue));
            constants.push(constants[customers - 1] - throughput.ln());
        }
        constants
    }
}

/// Logarithms of D^n / (a(1) a(2) ... a(n)) with a(i) the servers that i customers keep busy.
fn multi_server_constants((demand, servers): (f64, u32), max_customers: usize) -> Vec<f64> {
    let factor = |customers: usize| (demand / (customers as f64).min(f64::from(servers))).ln();
    let sums = (1..=max_customers).scan(0.0, |sum, customers| {
        *sum += factor(customers);
        Some(*sum)
    });
    std::iter::once(0.0).chain(sums).collect()
}

/// The convolution of two sequences, all by their logarithms: a delay of many service times is beyond any other range.
fn convolve(first: &[f64], second: &[f64]) -> Vec<f64> {
    let sum_term = |n: usize| {
        let terms = || (0..=n).map(|i| first[i] + second[n - i]);
        let largest = terms().fold(f64::NEG_INFINITY, f64::max);
        largest + terms().map(|term| (term - largest).exp()).sum::<f64>().ln()
    };
    (0..first.len()).map(sum_term).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn network(stations: &[Station], think: f64) -> ClosedNetwork {
        ClosedNetwork::new(stations.to_vec(), think).unwrap()
    }

    fn servers(demand: f64, servers: u32) -> Station {
        Station::servers(demand, NonZeroU32::new(servers).unwrap())
    }

    /// R. Jain, "The Art of Computer Systems Performance Analysis", Wiley 1991, examples 33.4 and 34.2: CPU, disk A, disk B.
    fn timesharing() -> ClosedNetwork {
        network(&[2.0, 3.0, 1.0].map(Station::queue), 4.0)
    }

    #[test]
    fn server_count_is_at_least_one() {
        assert_eq!(
            [-1.0, 0.0, 0.4, f64::NAN, 1.6, 3.0].map(|count| round_server_count(count).get()),
            [1, 1, 1, 1, 2, 3]
        );
    }

    #[test]
    fn slowest_device_part_becomes_station() {
        let part = |capacity, servers| DevicePart { capacity, servers: NonZeroU32::new(servers).unwrap() };
        let parts = [("disk", part(20.0, 1)), ("cpu", part(8.0, 2)), ("disk", part(5.0, 1)), ("disk", part(9.0, 1))];
        let network = ClosedNetwork::from_slowest_parts(parts, 1.0).unwrap();
        assert_eq!(network.stations(), [Station::queue(0.2), servers(0.25, 2)]);
        assert_eq!(network.capacity(), 5.0);
        assert_eq!(
            ClosedNetwork::from_slowest_parts([("disk", part(0.0, 1))], 0.0),
            Err(NetworkError::InvalidDemand(0))
        );
        assert_eq!(ClosedNetwork::from_slowest_parts(Vec::<(u8, DevicePart)>::new(), 0.0), Err(NetworkError::NoDemand));
    }

    #[test]
    fn published_networks_have_their_published_throughputs() {
        let first_rows = [(1, 6.0, 0.1), (2, 7.4, 0.175), (3, 9.088, 0.229), (4, 11.051, 0.266), (5, 13.256, 0.290)];
        let last_rows = [(17, 47.045, 0.333), (18, 50.032, 0.333), (19, 53.022, 0.333), (20, 56.016, 0.333)];
        let populations = timesharing().solve(20);
        for (customers, response, throughput) in first_rows.into_iter().chain(last_rows) {
            let population = populations[customers - 1];
            assert_eq!(population.customers, customers);
            assert!((population.response - response).abs() < 1e-3, "{population:?}");
            assert!((population.throughput - throughput).abs() < 1e-3, "{population:?}");
        }
        // Lazowska et al., table 6.2: CPU and two disks, 3 terminals.
        let terminals = network(&[0.605, 2.1, 1.35].map(Station::queue), 15.0).solve(3);
        for (population, throughput) in terminals.iter().zip([0.0525, 0.1031, 0.1515]) {
            assert!((population.throughput - throughput).abs() < 1e-4, "{population:?}");
        }
    }

    #[test]
    fn published_bounds_are_found() {
        // Jain, example 33.4: X(N) <= min(N / 10, 1 / 3), R(N) >= max(6, 3 N - 4), which cross at 10 / 3.
        let network = timesharing();
        for customers in 1..=20 {
            let (bounds, n) = (network.bounds(customers), customers as f64);
            assert!((bounds.max_throughput - (n / 10.0).min(1.0 / 3.0)).abs() < 1e-12);
            assert!((bounds.min_response - (3.0 * n - 4.0).max(6.0)).abs() < 1e-12);
        }
        assert!((network.saturation_point() - 10.0 / 3.0).abs() < 1e-12);
        assert_eq!(network.min_customers_for(0.95 / 3.0, 20), Some(8));
        assert_eq!(network.min_customers_for(0.34, 200), None);
    }

    #[test]
    fn one_customer_saturates_single_station() {
        let network = network(&[Station::queue(0.173)], 0.0);
        assert_eq!(network.min_customers_for(network.capacity(), 3), Some(1));
        assert!((network.solve(5)[4].response - 5.0 * 0.173).abs() < 1e-12);
    }

    #[test]
    fn multi_server_matches_machine_repair_model() {
        // Machines that fail after Z on average and repairers who take D: the birth and death process of textbooks, with
        // p(n) = p(0) N! / ((N - n)! a(1) ... a(n)) (D / Z)^n.
        let (demand, think, repairers) = (0.7, 2.5, 3_u32);
        let populations = network(&[servers(demand, repairers)], think).solve(30);
        for population in populations {
            let weights: Vec<f64> = (0..=population.customers)
                .scan(1.0, |weight, n| {
                    if n > 0 {
                        let busy = (n as f64).min(f64::from(repairers));
                        *weight *= (population.customers - n + 1) as f64 / busy * demand / think;
                    }
                    Some(*weight)
                })
                .collect();
            let busy = |n: usize| (n as f64).min(f64::from(repairers)) / demand;
            let throughput = weights.iter().enumerate().map(|(n, weight)| weight * busy(n)).sum::<f64>()
                / weights.iter().sum::<f64>();
            assert!((population.throughput / throughput - 1.0).abs() < 1e-12, "{population:?}");
        }
    }

    #[test]
    fn many_servers_long_think_time_stay_accurate() {
        // Far beyond the range of a number: 20,000 service times of thinking, 64 servers, 3,000 customers.
        let populations = network(&[servers(1e-4, 64), Station::queue(1e-6)], 2.0).solve(3_000);
        for population in &populations {
            // Nobody waits yet: 0.15 of 64 servers are busy.
            assert!(
                (population.throughput * 2.000_101 / population.customers as f64 - 1.0).abs() < 1e-6,
                "{population:?}"
            );
        }
        let saturated = network(&[servers(64e-3, 64), Station::queue(1e-4)], 0.0).solve(2_000);
        assert!((saturated[1_999].throughput - 1_000.0).abs() < 1e-6);
        assert!(saturated.windows(2).all(|pair| pair[0].throughput <= pair[1].throughput * (1.0 + 1e-12)));
    }

    #[test]
    fn invalid_times_are_rejected() {
        let new_network = |stations: &[Station], think| ClosedNetwork::new(stations.to_vec(), think);
        assert_eq!(new_network(&[Station::queue(1.0), Station::queue(-1.0)], 0.0), Err(NetworkError::InvalidDemand(1)));
        assert_eq!(new_network(&[Station::queue(f64::NAN)], 0.0), Err(NetworkError::InvalidDemand(0)));
        assert_eq!(new_network(&[Station::queue(1.0)], f64::INFINITY), Err(NetworkError::InvalidThinkTime));
        assert_eq!(new_network(&[Station::queue(0.0)], 1.0), Err(NetworkError::NoDemand));
        assert_eq!(new_network(&[], 1.0), Err(NetworkError::NoDemand));
        let delay_network = network(&[Station::delay(2.0)], 0.0);
        assert!((delay_network.solve(4)[3].throughput - 2.0).abs() < 1e-12);
        assert!(delay_network.capacity().is_infinite());
    }

    /// The throughput by the balance equations of the Markov chain of all states: customers go round think time and stations
    /// in a fixed order, times are exponential.
    fn markov_chain_throughput(network: &ClosedNetwork, customers: usize) -> f64 {
        let rates: Vec<Box<dyn Fn(usize) -> f64>> = std::iter::once(Station::delay(network.think_time))
            .chain(network.stations.iter().copied())
            .filter(|station| station.demand > 0.0)
            .map(|station| -> Box<dyn Fn(usize) -> f64> {
                let max_busy = match station.service {
                    Service::Queue(servers) => servers.get() as usize,
                    Service::Delay => usize::MAX,
                };
                Box::new(move |count: usize| count.min(max_busy) as f64 / station.demand)
            })
            .collect();
        let states = markov_states(customers, rates.len());
        let places: BTreeMap<&[usize], usize> =
            states.iter().enumerate().map(|(index, state)| (state.as_slice(), index)).collect();
        let mut chances = vec![1.0 / states.len() as f64; states.len()];
        let leaving = |state: &[usize]| state.iter().zip(&rates).map(|(&count, rate)| rate(count)).sum::<f64>();
        // Gauss and Seidel: each state's chance is what flows into it over the rate at which it is left. Half of each step, as
        // a ring of states would turn for ever.
        for _ in 0..4_000 {
            for (index, state) in states.iter().enumerate() {
                let mut inflow = 0.0;
                for target in (0..rates.len()).filter(|&queue| state[queue] > 0) {
                    let source = (target + rates.len() - 1) % rates.len();
                    let mut source_state = state.clone();
                    source_state[target] -= 1;
                    source_state[source] += 1;
                    inflow += chances[places[source_state.as_slice()]] * rates[source](source_state[source]);
                }
                chances[index] = (chances[index] + inflow / leaving(state)) / 2.0;
            }
            let sum: f64 = chances.iter().sum();
            chances.iter_mut().for_each(|chance| *chance /= sum);
        }
        states.iter().zip(&chances).map(|(state, chance)| chance * rates[0](state[0])).sum()
    }

    fn markov_states(customers: usize, stations: usize) -> Vec<Vec<usize>> {
        if stations == 1 {
            return vec![vec![customers]];
        }
        let rest =
            |count: usize| markov_states(customers - count, stations - 1).into_iter().map(move |rest| (count, rest));
        (0..=customers).flat_map(rest).map(|(count, rest)| [vec![count], rest].concat()).collect()
    }

    #[test]
    fn small_networks_agree_with_their_markov_chains() {
        let networks = [
            network(&[Station::queue(1.0), Station::queue(0.4)], 0.0),
            network(&[Station::queue(1.0), Station::queue(0.4), Station::delay(0.3)], 2.0),
            network(&[servers(1.0, 2), Station::queue(0.7)], 1.0),
            network(&[servers(1.0, 2), servers(0.5, 3), Station::queue(0.2)], 0.0),
        ];
        for network in networks {
            for population in network.solve(5) {
                let chain = markov_chain_throughput(&network, population.customers);
                assert!((population.throughput / chain - 1.0).abs() < 1e-6, "{network:?} {population:?} {chain}");
            }
        }
    }

    fn any_station() -> impl Strategy<Value = Station> {
        let service = prop_oneof![
            Just(Service::Delay),
            (1_u32..6).prop_map(|servers| Service::Queue(NonZeroU32::new(servers).unwrap()))
        ];
        (0.001..10.0_f64, service).prop_map(|(demand, service)| Station { demand, service })
    }

    proptest! {
        #[test]
        fn throughput_obeys_bounds_and_littles_law(
            stations in prop::collection::vec(any_station(), 1..6), think in 0.0..50.0_f64
        ) {
            let network = network(&stations, think);
            let mut previous_throughput = 0.0;
            for population in network.solve(40) {
                let bounds = network.bounds(population.customers);
                prop_assert!(population.throughput >= previous_throughput * (1.0 - 1e-9));
                prop_assert!(population.throughput <= bounds.max_throughput * (1.0 + 1e-9));
                prop_assert!(population.throughput >= bounds.min_throughput * (1.0 - 1e-9));
                prop_assert!(population.response >= bounds.min_response * (1.0 - 1e-9));
                let little = population.throughput * (population.response + think) / population.customers as f64;
                prop_assert!((little - 1.0).abs() < 1e-9);
                previous_throughput = population.throughput;
            }
        }
    }
}

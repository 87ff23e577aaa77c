//! One visit to a number of users: the load, and looks at both ends before it, and when the time that counts begins and ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kelvin_load::pattern::Pattern;
use kelvin_load::request::Form;
use kelvin_load::schedule::{Spread, Think};
use kelvin_load::target::Target;
use kelvin_load::verify::Verify;
use kelvin_load::{Demand, Peer};
use kelvin_model::load::Load;
use kelvin_model::resources::Look;
use kelvin_resources::Watched;

use crate::endpoint::Endpoint;
use crate::error::{Error, Result};
use crate::used::Used;
use kelvin_sys::spawn::Thread;

/// Time after which an answer is no longer waited for.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How often it is asked whether this process is to stop.
const LOOK: Duration = Duration::from_millis(20);

/// What a visit brought.
#[derive(Clone, Debug)]
pub(crate) struct Visited {
    pub load: Load,
    pub server: Used,
    pub client: Used,
    /// What it took beside the time that it was to take.
    pub beside: Duration,
}

impl Visited {
    /// Bytes of bodies a second that arrived.
    pub fn received(&self) -> f64 {
        self.load.received as f64 / self.load.seconds.max(f64::MIN_POSITIVE)
    }

    /// Requests a second that were answered in full and right. What has arrived of the others counts in part: in a visit of a slow server
    /// there are few answers, and it matters whether the last one ends just before or just after the visit. Not so where some answers
    /// were wrong, of which nothing counts.
    pub fn throughput(&self) -> f64 {
        let load = &self.load;
        match load.errors.count() == 0 && load.bytes > 0 {
            true => self.received() * load.requests as f64 / load.bytes as f64,
            false => load.rate(),
        }
    }
}

/// Who visits whom.
#[derive(Debug)]
pub(crate) struct Visitor {
    pub target: Target,
    /// Paths of the files.
    pub paths: Vec<String>,
    pub endpoint: Endpoint,
    /// This process.
    pub own: Watched,
}

/// What a visit is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub users: u64,
    pub think: Duration,
    pub pattern: Pattern,
    pub warm_up: Duration,
    pub duration: Duration,
    pub seed: u64,
}

impl Visitor {
    /// Makes a visit.
    ///
    /// # Errors
    /// A server that cannot be reached or does not tell what it uses; a signal to stop.
    pub fn visit(&mut self, wish: Wish) -> Result<Visited> {
        let reached = Instant::now();
        let goes_on = Arc::new(AtomicBool::new(true));
        let setup = kelvin_load::Setup { goes_on: Some(Arc::clone(&goes_on)), ..self.setup(wish) };
        let peer = Peer::reach(&setup)?;
        let (from, to) = (wish.warm_up, wish.warm_up + wish.duration);
        let Self { endpoint, own, .. } = self;
        let mut ends = Ends { endpoint, own };
        let before = ends.look()?;
        let begun = Instant::now();
        let (load, looks) = std::thread::scope(|scope| {
            let generator = Thread::named("load")
                .start_in(scope, || kelvin_load::load(&setup, &peer, &mut |_| {}).map_err(Error::from))?;
            let looks = {
                let _under_load = UnderLoad(&goes_on);
                ends.looks_at(begun, [from, to])
            };
            let load =
                generator.join().unwrap_or_else(|_| Err(Error::Unanswered("the load generator panicked".into())));
            Ok::<_, Error>((load?, looks?))
        })?;
        let [from, to] = looks;
        let server = Used::between([before.server, from.server, to.server]);
        let client = Used::between([before.client, from.client, to.client]);
        Ok(Visited { load, server, client, beside: reached.elapsed().saturating_sub(wish.warm_up + wish.duration) })
    }

    fn setup(&self, wish: Wish) -> kelvin_load::Setup {
        let mean = wish.think.as_nanos() as f64;
        kelvin_load::Setup {
            target: self.target.clone(),
            paths: self.paths.clone(),
            pattern: wish.pattern,
            form: Form::default(),
            demand: Demand::Users { users: wish.users as u32, think: Think { mean, spread: Spread::Exponential } },
            warm_up: wish.warm_up,
            duration: wish.duration,
            timeout: TIMEOUT,
            seed: wish.seed,
            verify: Verify::Length,
            known: vec![None; self.paths.len()],
            tls: None,
            spin: false,
            goes_on: None,
        }
    }
}

/// Has the users go on until it is dropped. Were they gone when both ends are looked at for the last time, the server would have gone on
/// without them: those that had waited would have their turns, and what was on its way would have arrived.
struct UnderLoad<'v>(&'v AtomicBool);

impl Drop for UnderLoad<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Both ends, to be looked at.
struct Ends<'v> {
    endpoint: &'v Endpoint,
    own: &'v mut Watched,
}

/// A look at each of them.
struct Looks {
    server: Look,
    client: Look,
}

impl Ends<'_> {
    /// Both ends now.
    fn look(&mut self) -> Result<Looks> {
        Ok(Looks { server: self.endpoint.look()?, client: self.own.look().map_err(Error::Look)? })
    }

    /// Both ends at two times after the begin.
    fn looks_at(&mut self, begun: Instant, times: [Duration; 2]) -> Result<[Looks; 2]> {
        let mut look = |time: Duration| {
            while let Some(left) = time.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) {
                if let Some(signal) = kelvin_sys::interrupt::requested() {
                    return Err(Error::Interrupted(signal.into()));
                }
                std::thread::sleep(left.min(LOOK));
            }
            self.look()
        };
        Ok([look(times[0])?, look(times[1])?])
    }
}

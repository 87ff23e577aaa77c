//! What the load generator and the server use over a link that is slow, loses requests, doubles and delays frames: no more than their work
//! takes, however often the kernel sends again.

mod link;
mod place;
mod running;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use kelvin_testing::Missing;
use link::{Link, Way};
use place::{Place, stderr};
use running::Running;
use serde_json::Value;

/// Of a request that is lost the kernel tells once more that it has left, and of one whose answer is delayed as well.
const TROUBLED: [Way; 2] = [
    Way { takes: Duration::from_millis(2), loses: 0.08, troubles: 0.03 },
    Way { takes: Duration::from_millis(2), loses: 0.01, troubles: 0.03 },
];
/// Over which a look at what the server uses is answered in time.
const UNSTEADY: [Way; 2] = [Way { takes: Duration::from_millis(2), loses: 0.02, troubles: 0.1 }; 2];
const CLEAN: [Way; 2] = [Way { takes: Duration::from_millis(2), loses: 0.0, troubles: 0.0 }; 2];
/// At which 6 files a second pass.
const RATE: &str = "1mbit";
const FILE_BYTES: usize = 20_000;
/// Share of a CPU that whoever has so little to do may use beside what it takes: of whoever never sleeps it is all.
const IDLE: f64 = 0.1;

/// A server on the far one, whose looks are answered, and what it serves.
struct Far {
    link: Link,
    place: Place,
    server: Running,
    resources: String,
}

impl Far {
    fn start(ways: [Way; 2], model: &str) -> Result<Self, Missing> {
        let link = Link::relayed(ways)?;
        link.limit(RATE)?;
        let place = Place::new();
        let root = place.path().join("root");
        fs::create_dir(&root).unwrap();
        ["a", "b", "c"].iter().for_each(|name| fs::write(root.join(name), vec![7; FILE_BYTES]).unwrap());
        fs::write(place.path().join("list"), "a\nb\nc\n").unwrap();
        fs::write(place.path().join("paths"), "/a\n/b\n/c\n").unwrap();
        let token = place.path().join("token");
        fs::write(&token, "0123456789abcdef0123456789abcdef\n").unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
        let listen = format!("{}:0", Link::FAR);
        let serve =
            ["serve", "root", "--listen", &listen, "--model", model, "--expose-resources", "--token-file", "token"];
        let mut server = Running::of(Link::kelvin(&place, &link.far, &serve), Stdio::null());
        let resources = server.line();
        Ok(Self { link, place, server, resources })
    }

    /// The output of the program on the near one, as data.
    fn near(&self, arguments: &[&str]) -> Value {
        let output = Link::kelvin(&self.place, &self.link.near, arguments).output().unwrap();
        assert!(!output.stdout.is_empty(), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn load(&self, demand: &[&str]) -> Value {
        let url = format!("http://{}", self.server.address);
        let times = ["--duration", "4s", "--warm-up", "500ms", "--json"];
        let all = self.near(&[&["load", &url, "--files", "paths"][..], &times, demand].concat());
        all.as_array().map_or_else(|| all.clone(), |loads| loads[0].clone())
    }

    /// Seconds of CPU that the server has used.
    fn server_cpu(&self) -> f64 {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.server.child.id())).unwrap();
        let (_, rest) = text.rsplit_once(')').unwrap();
        let ticks = rest.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<f64>().unwrap());
        ticks.sum::<f64>() / 100.0
    }
}

fn figure(of: &Value, name: &str) -> f64 {
    of[name].as_f64().unwrap_or_else(|| panic!("no {name}: {of}"))
}

/// Where a server of each model runs.
fn servers(ways: [Way; 2], models: &[&'static str]) -> Vec<(&'static str, Far)> {
    let start = |model| match Far::start(ways, model) {
        Ok(far) if far.server.address.is_empty() => {
            Missing::machine("Linux with io_uring").skips(format!("a server of the model {model}"));
            None
        }
        Ok(far) => Some((model, far)),
        Err(missing) => {
            missing.skips(format!("a server of the model {model} over a link that loses frames"));
            None
        }
    };
    models.iter().copied().filter_map(start).collect()
}

#[test]
fn a_generator_with_little_to_do_uses_little_however_often_the_kernel_sends_again() {
    let demands = [&["--users", "12"][..], &["--users", "6", "--think", "500ms", "--spread", "exponential"]];
    let clean = match Far::start(CLEAN, "epoll") {
        Ok(far) => far.load(demands[0]),
        Err(missing) => return missing.skips("a link that loses frames"),
    };
    let cost = figure(&clean["generator"], "cpu") / figure(&clean, "requests");
    for (model, far) in servers(TROUBLED, &["epoll", "uring", "pool"]) {
        for demand in demands {
            let (begun, before) = (Instant::now(), far.server_cpu());
            let load = far.load(demand);
            let (used, most) = (far.server_cpu() - before, IDLE * begun.elapsed().as_secs_f64());
            assert!(used <= most + 4.0 * cost * figure(&load, "requests"), "{model}: the server used {used} s: {load}");
            let generator = &load["generator"];
            let most = IDLE * figure(&load, "seconds") + 4.0 * cost * figure(&load, "requests");
            assert!(figure(generator, "cpu") <= most, "{model}: more than {most} s: {load}");
            let futile = figure(generator, "futile");
            assert!(futile <= 10.0 + figure(&load, "connections"), "{model}: woken up for nothing: {load}");
        }
    }
}

#[test]
fn visits_beside_looks_use_little_however_often_the_kernel_sends_again() {
    for (model, far) in servers(UNSTEADY, &["epoll"]) {
        let url = format!("http://{}/", far.server.address);
        let of = ["--url", &url, "--url-list", "list", "--resources-token", "token", "--resources", &far.resources];
        let wanted = ["--users", "4,12", "--rounds", "2", "--visit", "1s", "--budget", "1s"];
        let study = far.near(
            &[&["study", "load", "--no-store", "--no-report", "--json", "--with-samples"][..], &of, &wanted].concat(),
        );
        let mut met = 0;
        for measurement in study["run"]["measurements"].as_array().unwrap() {
            let resource = measurement["case"]["resource"].as_str().unwrap_or_default();
            let uses = ["client-cpu", "server-thread"].contains(&resource);
            for round in measurement["rounds"].as_array().unwrap().iter().filter(|_| uses) {
                let readings = round["attempt"]["measured"].as_array().unwrap_or_else(|| panic!("{round}")).iter();
                for reading in readings.filter(|reading| reading["metric"] == "load.utilisation") {
                    let share = reading["readings"]["scalars"][0].as_f64().unwrap();
                    assert!(share < 0.5, "{model}: {resource} used {share} of a CPU");
                    met += 1;
                }
            }
        }
        assert_eq!(met, 2 * 5, "both of each visit");
    }
}

//! The simulated cloud on disk: answered changes survive, whatever happens afterwards.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use steersman_neutron::simulated::OpenError;
use steersman_neutron::{
    Cloud, NetworkCreate, NetworkFilter, NetworkId, RequestId, Simulated, SubnetCreate, SubnetFilter,
};

/// The variable with the directory, for the process that is to be killed.
const CRASH_DIR: &str = "STEERSMAN_TEST_CRASH_DIR";

#[tokio::test]
async fn a_cloud_on_disk_is_the_same_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let request = RequestId::random();
    let cloud = Simulated::open(dir.path()).unwrap();
    assert!(
        cloud.is_simulated()
            && cloud.name().starts_with("simulated (")
            && cloud.name().contains("simulated-neutron.json")
    );
    let network = cloud.create_network(request, &NetworkCreate::default()).await.unwrap();
    let create = SubnetCreate::new(network.id, "10.1.0.0/24".parse().unwrap());
    let subnet = cloud.create_subnet(request, &create).await.unwrap();
    let network = cloud.read_network(request, network.id).await.unwrap();
    assert!(matches!(Simulated::open(dir.path()), Err(OpenError::Held { .. })));
    drop(cloud);
    let cloud = Simulated::open(dir.path()).unwrap();
    assert_eq!(cloud.find_networks(request, &NetworkFilter::all()).await.unwrap(), [network]);
    assert_eq!(cloud.find_subnets(request, &SubnetFilter::all()).await.unwrap(), [subnet]);
}

#[tokio::test]
async fn creates_at_once_are_all_answered_and_all_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let cloud = Simulated::open(dir.path()).unwrap();
    let request = RequestId::random();
    let create = |cloud: Simulated| async move { cloud.create_network(request, &NetworkCreate::default()).await };
    let creates: Vec<_> = (0..200).map(|_| tokio::spawn(create(cloud.clone()))).collect();
    let mut answered = Vec::new();
    for create in creates {
        answered.push(create.await.unwrap().unwrap().id);
    }
    drop(cloud);
    answered.sort_unstable();
    let found = Simulated::open(dir.path()).unwrap().find_networks(request, &NetworkFilter::all()).await.unwrap();
    let mut found: Vec<_> = found.iter().map(|network| network.id).collect();
    found.sort_unstable();
    assert_eq!(found, answered);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_cloud_that_cannot_write_accepts_nothing_more() {
    let dir = tempfile::tempdir().unwrap();
    let cloud = Simulated::open(dir.path()).unwrap();
    let request = RequestId::random();
    let kept = cloud.create_network(request, &NetworkCreate::default()).await.unwrap();
    // A directory in the way of the temporary file: writing fails even for root.
    let obstacle = dir.path().join("simulated-neutron.new");
    std::fs::create_dir(&obstacle).unwrap();
    let error = cloud.create_network(request, &NetworkCreate::default()).await.unwrap_err();
    assert!(error.is_uncertain(), "{error:?}");
    std::fs::remove_dir(&obstacle).unwrap();
    let error = cloud.create_network(request, &NetworkCreate::default()).await.unwrap_err();
    assert!(!error.is_uncertain() && error.is_retryable(), "{error:?}");
    assert_eq!(cloud.find_networks(request, &NetworkFilter::all()).await.unwrap(), [kept]);
}

#[tokio::test]
async fn what_was_answered_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "simulated::creates_networks_until_it_is_killed", "--nocapture"])
        .env(CRASH_DIR, dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ids = lines.map_while(Result::ok).filter_map(|line| line.parse::<NetworkId>().ok());
    let mut acknowledged: Vec<NetworkId> = Vec::new();
    for id in ids {
        acknowledged.push(id);
        if acknowledged.len() == 25 {
            // Lines printed before the kill arrives are still read: the loop ends with the pipe.
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(25 <= acknowledged.len());
    let cloud = Simulated::open(dir.path()).unwrap();
    for id in acknowledged {
        cloud.read_network(RequestId::random(), id).await.unwrap();
    }
}

/// Not a test of its own: the process that the test above kills.
#[tokio::test]
async fn creates_networks_until_it_is_killed() {
    let Some(dir) = std::env::var_os(CRASH_DIR) else { return };
    let cloud = Simulated::open(dir.as_ref()).unwrap();
    for _ in 0..100_000 {
        println!("{}", cloud.create_network(RequestId::random(), &NetworkCreate::default()).await.unwrap().id);
    }
}

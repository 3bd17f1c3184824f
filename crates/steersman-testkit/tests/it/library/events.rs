//! Events of both APIs, as a real API server stores them.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, ObjectReference};
use k8s_openapi::api::events::v1;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Resource, ResourceExt};
use serde_json::{Value, json};
use steersman::ObjectKey;
use steersman::events::{EventRecorder, EventType, NewEvent};
use steersman_testkit::{ControlPlane, Fault};

use crate::{configs, create};

async fn all(plane: &ControlPlane) -> Vec<Event> {
    Api::<Event>::all(plane.client()).list(&ListParams::default()).await.unwrap().items
}

fn bound(config: &ConfigMap, note: &str) -> NewEvent {
    let node = ObjectReference { kind: Some("Node".into()), name: Some("n".into()), ..Default::default() };
    NewEvent::new(config.object_ref(&()), EventType::Normal, "Scheduled", note)
        .related(node)
        .action("Binding".to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_series_is_one_event_in_both_apis() {
    let plane = ControlPlane::start().await;
    let config = create(&configs(&plane), "x").await;
    let recorder = EventRecorder::with_series(plane.client(), "example.com/binder");
    for note in ["one", "two", "three", "four"] {
        recorder.record(bound(&config, note));
    }
    recorder.flush().await;
    let series = Api::<v1::Event>::all(plane.client()).list(&ListParams::default()).await.unwrap().items;
    assert_eq!(series.len(), 1);
    let said = serde_json::to_value(&series[0]).unwrap();
    let picked: Value =
        ["reportingController", "action", "reason", "note", "type"].iter().map(|name| said[name].clone()).collect();
    assert_eq!(picked, json!(["example.com/binder", "Binding", "Scheduled", "one", "Normal"]));
    assert_eq!((&said["series"]["count"], &said["related"]["name"]), (&json!(4), &json!("n")));
    assert!(said["reportingInstance"].as_str().unwrap().starts_with("binder-"));
    let core = all(&plane).await;
    assert_eq!(core[0].name_any(), series[0].name_any());
    assert_eq!(core[0].involved_object.uid, config.metadata.uid);
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_series_is_finished_after_a_silence_even_if_nobody_asks() {
    let plane = ControlPlane::start().await;
    let config = create(&configs(&plane), "x").await;
    let recorder = EventRecorder::with_series(plane.client(), "example.com/binder");
    for _ in 0..3 {
        recorder.record(bound(&config, "one"));
    }
    tokio::time::sleep(Duration::from_secs(350)).await;
    let count = async || all(&plane).await[0].series.as_ref().and_then(|series| series.count);
    assert_eq!(count().await, Some(2));
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(count().await, Some(3));
    recorder.record(bound(&config, "one"));
    recorder.flush().await;
    assert_eq!(all(&plane).await.len(), 2, "the next one is another event");
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_event_that_expired_begins_anew_in_either_api() {
    let plane = ControlPlane::start().await;
    let config = create(&configs(&plane), "x").await;
    let both = [
        EventRecorder::new(plane.client(), "binder"),
        EventRecorder::with_series(plane.client(), "example.com/binder"),
    ];
    for recorder in both {
        recorder.record(bound(&config, "one"));
        recorder.flush().await;
        let events = Api::<Event>::default_namespaced(plane.client());
        for event in all(&plane).await {
            events.delete(&event.name_any(), &DeleteParams::default()).await.unwrap();
        }
        recorder.record(bound(&config, "one"));
        recorder.flush().await;
        let left = all(&plane).await;
        assert_eq!(left.len(), 1);
        let (count, series) = (left[0].count, left[0].series.as_ref().and_then(|series| series.count));
        assert_eq!(count.filter(|count| *count > 0).or(series), Some(2));
        assert_eq!((left[0].action.as_deref(), left[0].related.is_some()), (Some("Binding"), true));
        events.delete(&left[0].name_any(), &DeleteParams::default()).await.unwrap();
    }
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn events_about_objects_without_a_namespace_are_in_default_in_either_api() {
    let plane = ControlPlane::start().await;
    let namespace = plane.until(&ObjectKey::cluster("default"), |_: &Namespace| true).await;
    EventRecorder::new(plane.client(), "binder").event(&namespace, EventType::Warning, "Broken", "it broke");
    let recorder = EventRecorder::with_series(plane.client(), "example.com/binder");
    recorder.event(&namespace, EventType::Warning, "Broken", "it broke");
    recorder.flush().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let events = all(&plane).await;
    assert_eq!(events.len(), 2);
    assert!(events.iter().all(|event| event.namespace().as_deref() == Some("default")));
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_recorded_last_is_sent_although_the_recorder_is_dropped() {
    let plane = ControlPlane::start().await;
    let config = create(&configs(&plane), "x").await;
    let recorder = EventRecorder::with_series(plane.client(), "example.com/binder");
    plane.fail_next_where(3, Fault::Refused(503), |method, _| method == "POST");
    for _ in 0..5 {
        recorder.record(bound(&config, "one"));
    }
    drop(recorder);
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(all(&plane).await[0].series.as_ref().and_then(|series| series.count), Some(5));
    plane.stop().await;
}

//! A validating webhook: rules beyond a schema, about changes, deletions and users.

use std::net::SocketAddr;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, CustomResource};
use serde::{Deserialize, Serialize};
use serde_json::json;
use steersman::webhook::{Admission, Denial, FieldError, SelfSigned, Webhooks, Write};
use steersman::{Manager, ObjectKey};
use steersman_testkit::ControlPlane;

#[derive(Clone, CustomResource, Debug, Deserialize, Serialize)]
#[kube(group = "example.com", version = "v1", kind = "Release", namespaced, schema = "disabled")]
struct ReleaseSpec {
    image: String,
    replicas: u32,
}

/// The user who may delete a running release.
struct Rules {
    cleaner: String,
}

async fn judge(request: &Admission<Release>, rules: &Rules) -> Result<(), Denial> {
    match request.write() {
        Some(Write::Create(new)) => check(new)?,
        Some(Write::Update(old, new)) => {
            check(new)?;
            if repository(&old.spec.image) != repository(&new.spec.image) {
                return Err(FieldError::forbidden("spec.image", "a release stays in its repository").into());
            }
        }
        Some(Write::Delete(old)) => {
            let is_cleaner = request.user.username.as_deref() == Some(&*rules.cleaner);
            if old.spec.replicas > 0 && !is_cleaner {
                let message = format!("{} replicas run: set spec.replicas to 0 first", old.spec.replicas);
                return Err(Denial::forbidden(message));
            }
        }
        _ => {}
    }
    if request.object.as_ref().is_some_and(|release| release.spec.replicas == 1) {
        request.warn("spec.replicas is 1: an update interrupts the service");
    }
    Ok(())
}

fn check(release: &Release) -> Result<(), Denial> {
    match release.spec.image.rsplit_once(':') {
        None => Err(FieldError::invalid("spec.image", &*release.spec.image, "must have a tag").into()),
        Some((_, "latest")) => {
            Err(FieldError::invalid("spec.image", &*release.spec.image, "must have a tag that does not move").into())
        }
        Some(_) => Ok(()),
    }
}

fn repository(image: &str) -> &str {
    image.rsplit_once(':').map_or(image, |(repository, _)| repository)
}

/// Serves until `end` completes, which gets the address.
async fn run<E: Future<Output = ()>>(
    client: kube::Client,
    end: impl FnOnce(SocketAddr) -> E,
) -> Result<(), Box<dyn std::error::Error>> {
    let certificates =
        SelfSigned::new(client.clone(), "default", "release-rules").host("127.0.0.1").validating("release-rules");
    let server = Webhooks::new()
        .validate("/releases", judge, Rules { cleaner: "cleaner".to_owned() })
        .bind(SocketAddr::from(([127, 0, 0, 1], 0)), certificates)?;
    let end = end(server.address());
    Manager::new(client).webhooks(server).run(end).await?;
    Ok(())
}

const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: releases.example.com}
spec:
  group: example.com
  names: {kind: Release, plural: releases}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [image, replicas]
            properties: {image: {type: string}, replicas: {type: integer, minimum: 0}}
";

fn configuration(address: SocketAddr) -> String {
    let operations = ["CREATE", "UPDATE", "DELETE"];
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "release-rules"},
        "webhooks": [{
            "name": "release-rules.example.com",
            "clientConfig": {"url": format!("https://{address}/releases")},
            "rules": [{"apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["releases"], "operations": operations}],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"]
        }]
    });
    configuration.to_string()
}

/// The message of the API server for a refused request.
fn refusal<T: std::fmt::Debug>(outcome: Result<T, kube::Error>) -> String {
    match outcome {
        Err(kube::Error::Api(status)) => format!("{} {}: {}", status.code, status.reason, status.message),
        other => panic!("want a refusal, got {other:?}"),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let plane = ControlPlane::start().await;
    plane.apply(DEFINITION).await;
    let story = async |address| {
        plane.apply(&configuration(address)).await;
        let is_trusted = |hook: &ValidatingWebhookConfiguration| {
            hook.webhooks.iter().flatten().all(|webhook| webhook.client_config.ca_bundle.is_some())
        };
        plane.until(&ObjectKey::cluster("release-rules"), is_trusted).await;

        let api: Api<Release> = Api::namespaced(plane.client(), "default");
        let release = |image: &str| Release::new("web", ReleaseSpec { image: image.to_owned(), replicas: 2 });
        let refused = refusal(api.create(&PostParams::default(), &release("shop/web:latest")).await);
        println!("{refused}");
        assert_eq!(
            refused,
            "422 Invalid: admission webhook \"release-rules.example.com\" denied the request: Release.example.com \"web\" is \
             invalid: spec.image: Invalid value: \"shop/web:latest\": must have a tag that does not move"
        );
        api.create(&PostParams::default(), &release("shop/web:1")).await.expect("the release is admitted");

        let image = |image: &str| Patch::Merge(json!({"spec": {"image": image}}));
        api.patch("web", &PatchParams::default(), &image("shop/web:2")).await.expect("another tag is admitted");
        let refused = refusal(api.patch("web", &PatchParams::default(), &image("evil/web:3")).await);
        assert!(refused.ends_with("spec.image: Forbidden: a release stays in its repository"), "{refused}");

        let refused = refusal(api.delete("web", &DeleteParams::default()).await);
        assert!(refused.ends_with("denied the request: 2 replicas run: set spec.replicas to 0 first"), "{refused}");
        let idle = Patch::Merge(json!({"spec": {"replicas": 0}}));
        api.patch("web", &PatchParams::default(), &idle).await.expect("no replicas are admitted");
        api.delete("web", &DeleteParams::default()).await.expect("the deletion is admitted");
    };
    run(plane.client(), story).await?;
    plane.stop().await;
    Ok(())
}

#[test]
fn releases_follow_their_rules() {
    main().unwrap();
}

//! Converts objects between the versions of a kind: between types with a hub in the middle, or by one function.

use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;

use kube::Resource;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Converts the objects of one kind between its versions.
///
/// In the metadata, the API server lets a conversion change labels and annotations only. The other fields are therefore
/// copied from the object that was sent, whatever a type does with them. A field that one version does not have must be
/// kept by the types themselves, best in an annotation, or a client that reads and writes in that version removes it.
///
/// ```
/// # mod v1 {
/// #     use kube::CustomResource;
/// #     use serde::{Deserialize, Serialize};
/// #     #[derive(Clone, CustomResource, Debug, Deserialize, Serialize)]
/// #     #[kube(group = "example.com", version = "v1", kind = "Timer", namespaced, schema = "disabled")]
/// #     pub struct TimerSpec { pub seconds: u64 }
/// # }
/// # mod v1beta1 {
/// #     use kube::CustomResource;
/// #     use serde::{Deserialize, Serialize};
/// #     #[derive(Clone, CustomResource, Debug, Deserialize, Serialize)]
/// #     #[kube(group = "example.com", version = "v1beta1", kind = "Timer", namespaced, schema = "disabled")]
/// #     pub struct TimerSpec { pub minutes: u64 }
/// # }
/// use steersman::webhook::{Conversion, Webhooks};
///
/// impl From<v1beta1::Timer> for v1::Timer {
///     fn from(old: v1beta1::Timer) -> Self {
///         Self { metadata: old.metadata, spec: v1::TimerSpec { seconds: old.spec.minutes * 60 } }
///     }
/// }
///
/// impl TryFrom<v1::Timer> for v1beta1::Timer {
///     type Error = String;
///     fn try_from(new: v1::Timer) -> Result<Self, String> {
///         match new.spec.seconds % 60 {
///             0 => Ok(Self { metadata: new.metadata, spec: v1beta1::TimerSpec { minutes: new.spec.seconds / 60 } }),
///             odd => Err(format!("spec.seconds has {odd} seconds beyond full minutes, which v1beta1 cannot say")),
///         }
///     }
/// }
///
/// let conversion = Conversion::hub::<v1::Timer>().version::<v1beta1::Timer>();
/// let webhooks = Webhooks::new().convert("/convert", conversion);
/// ```
pub struct Conversion {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) convert: Box<dyn Convert>,
}

/// A conversion with a type in the middle, under construction: more versions can be added.
pub struct HubConversion<H> {
    spokes: Vec<Spoke<H>>,
    hub: PhantomData<fn(H)>,
}

/// Converts one object to another version.
pub(crate) trait Convert: Send + Sync {
    /// `object` has the version `from`, `desired` is another `group/version`.
    fn convert(&self, object: Value, from: &str, desired: &str) -> Result<Value, String>;
}

type ToHub<H> = Box<dyn Fn(Value) -> Result<H, String> + Send + Sync>;
type FromHub<H> = Box<dyn Fn(H) -> Result<Value, String> + Send + Sync>;

/// One version with its conversions to the hub and back.
struct Spoke<H> {
    api_version: String,
    to_hub: ToHub<H>,
    from_hub: FromHub<H>,
}

struct Dynamic<F>(F);

/// The type of an object, read before it is converted.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TypeOf {
    #[serde(default)]
    pub(crate) api_version: String,
    #[serde(default)]
    pub(crate) kind: String,
}

// === impl Conversion ===

impl Conversion {
    /// A conversion in which every version is converted to `H` and back; `H` should be the stored version. Add the
    /// others with [`HubConversion::version`].
    pub fn hub<H>() -> HubConversion<H>
    where
        H: Resource<DynamicType = ()> + DeserializeOwned + Serialize + Send + Sync + 'static,
    {
        HubConversion { spokes: Vec::new(), hub: PhantomData }
            .version_with(|hub| Ok::<_, Infallible>(hub), Ok::<_, Infallible>)
    }

    /// A conversion by a function of the object and the `group/version` to convert to. The function need not set
    /// `apiVersion`. It is not called if the versions are the same.
    pub fn dynamic<F, E>(group: &str, kind: &str, function: F) -> Self
    where
        F: Fn(Value, &str) -> Result<Value, E> + Send + Sync + 'static,
        E: fmt::Display,
    {
        let function = move |object, desired: &str| function(object, desired).map_err(|error| error.to_string());
        Self { group: group.to_owned(), kind: kind.to_owned(), convert: Box::new(Dynamic(function)) }
    }
}

impl<H> HubConversion<H>
where
    H: Resource<DynamicType = ()> + DeserializeOwned + Serialize + Send + Sync + 'static,
{
    /// Adds a version, by the standard library's conversions between it and the hub: `From`, or `TryFrom` where a
    /// conversion can fail.
    pub fn version<V>(self) -> Self
    where
        V: Resource<DynamicType = ()> + DeserializeOwned + Serialize + TryFrom<H> + TryInto<H> + 'static,
        <V as TryFrom<H>>::Error: fmt::Display,
        <V as TryInto<H>>::Error: fmt::Display,
    {
        self.version_with(|object: V| object.try_into(), |hub| V::try_from(hub))
    }

    /// Adds a version, by two functions: into the hub, and back.
    ///
    /// # Panics
    /// When this version was added before, or its kind is not that of the hub.
    pub fn version_with<V, E, D>(
        mut self,
        to_hub: impl Fn(V) -> Result<H, E> + Send + Sync + 'static,
        from_hub: impl Fn(H) -> Result<V, D> + Send + Sync + 'static,
    ) -> Self
    where
        V: Resource<DynamicType = ()> + DeserializeOwned + Serialize + 'static,
        E: fmt::Display,
        D: fmt::Display,
    {
        assert!(
            V::kind(&()) == H::kind(&()) && V::group(&()) == H::group(&()),
            "{}.{} is no version of {}.{}",
            V::kind(&()),
            V::group(&()),
            H::kind(&()),
            H::group(&())
        );
        let api_version = V::api_version(&()).into_owned();
        assert!(
            self.spokes.iter().all(|spoke| spoke.api_version != api_version),
            "the conversion of {} has {api_version} twice",
            V::kind(&())
        );
        let to_hub: ToHub<H> = Box::new(move |object| {
            let object = serde_json::from_value(object).map_err(|error| error.to_string())?;
            to_hub(object).map_err(|error| error.to_string())
        });
        let from_hub: FromHub<H> = Box::new(move |hub| {
            let object = from_hub(hub).map_err(|error| error.to_string())?;
            serde_json::to_value(object).map_err(|error| error.to_string())
        });
        self.spokes.push(Spoke { api_version, to_hub, from_hub });
        self
    }
}

impl<H> From<HubConversion<H>> for Conversion
where
    H: Resource<DynamicType = ()> + Send + Sync + 'static,
{
    fn from(conversion: HubConversion<H>) -> Self {
        Self { group: H::group(&()).into_owned(), kind: H::kind(&()).into_owned(), convert: Box::new(conversion) }
    }
}

impl<H> Convert for HubConversion<H> {
    fn convert(&self, object: Value, from: &str, desired: &str) -> Result<Value, String> {
        let spoke = |api_version: &str| {
            self.spokes.iter().find(|spoke| spoke.api_version == api_version).ok_or_else(|| {
                let known: Vec<&str> = self.spokes.iter().map(|spoke| &*spoke.api_version).collect();
                format!("no conversion for {api_version}: known are {}", known.join(", "))
            })
        };
        let hub = (spoke(from)?.to_hub)(object)?;
        (spoke(desired)?.from_hub)(hub)
    }
}

impl<F> Convert for Dynamic<F>
where
    F: Fn(Value, &str) -> Result<Value, String> + Send + Sync,
{
    fn convert(&self, object: Value, _: &str, desired: &str) -> Result<Value, String> {
        (self.0)(object, desired)
    }
}

impl fmt::Debug for Conversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversion").field("group", &self.group).field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl<H> fmt::Debug for HubConversion<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let versions: Vec<&str> = self.spokes.iter().map(|spoke| &*spoke.api_version).collect();
        f.debug_struct("HubConversion").field("versions", &versions).finish()
    }
}

/// Converts one object of a review to the desired version.
pub(crate) fn convert(
    convert: &dyn Convert,
    object: &RawValue,
    from: &TypeOf,
    desired: &str,
) -> Result<Box<RawValue>, String> {
    if from.api_version == desired {
        return Ok(object.to_owned());
    }
    let object: Value = serde_json::from_str(object.get()).map_err(|error| error.to_string())?;
    let metadata = object.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    let named = name(&metadata);
    let failed = |error: String| {
        format!("{} {named} cannot be converted from {} to {desired}: {error}", from.kind, from.api_version)
    };
    let mut converted = convert.convert(object, &from.api_version, desired).map_err(failed)?;
    let Some(fields) = converted.as_object_mut() else { return Err(failed("the result is no object".to_owned())) };
    let mut kept = metadata;
    for changeable in ["annotations", "labels"] {
        let new = fields.get_mut("metadata").and_then(|metadata| metadata.get_mut(changeable)).map(Value::take);
        match new.filter(|new| !new.is_null()) {
            Some(new) => drop(kept.insert(changeable.to_owned(), new)),
            None => drop(kept.remove(changeable)),
        }
    }
    fields.insert("metadata".to_owned(), Value::Object(kept));
    fields.insert("apiVersion".to_owned(), desired.into());
    fields.insert("kind".to_owned(), from.kind.as_str().into());
    serde_json::value::to_raw_value(&converted).map_err(|error| failed(error.to_string()))
}

fn name(metadata: &Map<String, Value>) -> String {
    let field = |name: &str| metadata.get(name).and_then(Value::as_str).unwrap_or_default();
    match field("namespace") {
        "" => format!("{:?}", field("name")),
        namespace => format!("{:?}", format!("{namespace}/{}", field("name"))),
    }
}

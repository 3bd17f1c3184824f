package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The custom resource in the form of controller-gen's output: types, deep copies, registration with a scheme.

var groupVersion = schema.GroupVersion{Group: "example.com", Version: "v1"}

// Database is the custom resource.
type Database struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   DatabaseSpec   `json:"spec"`
	Status DatabaseStatus `json:"status,omitempty"`
}

// DatabaseSpec is the wanted state of a database.
type DatabaseSpec struct {
	// The cluster in which it runs; the indexed field.
	Cluster          string            `json:"cluster"`
	Engine           string            `json:"engine"`
	EngineVersion    string            `json:"engineVersion"`
	Parameters       map[string]string `json:"parameters,omitempty"`
	Replicas         int32             `json:"replicas"`
	StorageClass     string            `json:"storageClass"`
	StorageGigabytes int64             `json:"storageGigabytes"`
}

// DatabaseStatus is the observed state.
type DatabaseStatus struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	Endpoint   string             `json:"endpoint,omitempty"`
	Phase      string             `json:"phase,omitempty"`
}

// DatabaseList is a list of them.
type DatabaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Database `json:"items"`
}

func addToScheme(scheme *runtime.Scheme) {
	scheme.AddKnownTypes(groupVersion, &Database{}, &DatabaseList{})
	metav1.AddToGroupVersion(scheme, groupVersion)
}

// DeepCopyInto copies into out.
func (in *Database) DeepCopyInto(out *Database) {
	*out = *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	if in.Spec.Parameters != nil {
		out.Spec.Parameters = make(map[string]string, len(in.Spec.Parameters))
		for key, value := range in.Spec.Parameters {
			out.Spec.Parameters[key] = value
		}
	}
	if in.Status.Conditions != nil {
		out.Status.Conditions = make([]metav1.Condition, len(in.Status.Conditions))
		for i := range in.Status.Conditions {
			in.Status.Conditions[i].DeepCopyInto(&out.Status.Conditions[i])
		}
	}
}

// DeepCopyObject copies.
func (in *Database) DeepCopyObject() runtime.Object {
	out := &Database{}
	in.DeepCopyInto(out)
	return out
}

// DeepCopyObject copies.
func (in *DatabaseList) DeepCopyObject() runtime.Object {
	out := &DatabaseList{TypeMeta: in.TypeMeta}
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]Database, len(in.Items))
	for i := range in.Items {
		in.Items[i].DeepCopyInto(&out.Items[i])
	}
	return out
}

// Says how the types of a template of Pods look in Go, and what hashes templates have: what src/template_hash is made of and tested with.
//
//	go run . > ../src/template_hash/types.txt
//	go run . -cases < templates.json > ../src/template_hash/cases.json
package main

import (
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"log"
	"os"
	"reflect"
	"sort"
	"strings"

	"github.com/davecgh/go-spew/spew"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"
)

// The settings of k8s.io/utils/dump for hashes.
var printer = &spew.ConfigState{
	Indent: " ", SortKeys: true, DisableMethods: true, SpewKeys: true,
	DisablePointerAddresses: true, DisableCapacities: true,
}

// The lines of the fields of each structure, by its name.
var structures = map[string][]string{}

type testCase struct {
	Hash     string          `json:"hash"`
	Collided string          `json:"collided"`
	Template json.RawMessage `json:"template"`
}

func main() {
	cases := flag.Bool("cases", false, "read a list of templates, and print each with its hashes")
	flag.Parse()
	if *cases {
		printCases()
		return
	}
	visit(reflect.TypeOf(v1.PodTemplateSpec{}))
	names := make([]string, 0, len(structures))
	for name := range structures {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Println(name)
		for _, field := range structures[name] {
			fmt.Println(" " + field)
		}
	}
}

func printCases() {
	var templates []json.RawMessage
	if err := json.NewDecoder(os.Stdin).Decode(&templates); err != nil {
		log.Fatal(err)
	}
	one := int32(1)
	cases := make([]testCase, 0, len(templates))
	for _, text := range templates {
		var template v1.PodTemplateSpec
		if err := json.Unmarshal(text, &template); err != nil {
			log.Fatal(err)
		}
		cases = append(cases, testCase{compute(template, nil), compute(template, &one), text})
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(cases); err != nil {
		log.Fatal(err)
	}
}

func compute(template v1.PodTemplateSpec, collisions *int32) string {
	hash := fnv.New32a()
	printer.Fprintf(hash, "%#v", template)
	if collisions != nil {
		bytes := make([]byte, 8)
		binary.LittleEndian.PutUint32(bytes, uint32(*collisions))
		hash.Write(bytes)
	}
	return rand.SafeEncodeString(fmt.Sprint(hash.Sum32()))
}

// The name of a type and, where the name does not say it, what it is.
func describe(of reflect.Type) string {
	structure := of.Kind().String()
	switch of.Kind() {
	case reflect.Pointer:
		return "*" + describe(of.Elem())
	case reflect.Slice:
		structure = "[]" + describe(of.Elem())
	case reflect.Map:
		structure = "map " + describe(of.Elem())
	case reflect.Struct:
		visit(of)
		return of.String()
	}
	if of.String() == structure {
		return structure
	}
	return of.String() + "=" + structure
}

func visit(of reflect.Type) {
	if _, known := structures[of.String()]; known {
		return
	}
	structures[of.String()] = nil
	switch of.String() {
	case "intstr.IntOrString", "resource.Quantity", "v1.Time":
		// Printed by code of their own.
		return
	}
	var fields []string
	for i := range of.NumField() {
		field := of.Field(i)
		name := strings.Split(field.Tag.Get("json"), ",")[0]
		if field.Anonymous && name == "" {
			name = "."
		}
		fields = append(fields, field.Name+" "+name+" "+describe(field.Type))
	}
	structures[of.String()] = fields
}

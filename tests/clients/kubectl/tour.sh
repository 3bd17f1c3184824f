#!/usr/bin/env bash
# One kubectl through a user's day. KUBECTL, NAMESPACE and NAME say which.
set -uo pipefail
failed=0

k() { "$KUBECTL" --namespace "$NAMESPACE" "$@"; }

# fact TITLE EXPECTED COMMAND...: the command succeeds and prints what matches.
fact() {
    local title="$1" expected="$2" said code
    shift 2
    said="$("$@" 2>&1 </dev/null)"
    code=$?
    if [ "$code" = 0 ] && [[ "$said" =~ $expected ]]; then
        echo "ok kubectl $NAME: $title"
    else
        tell "$title" "$expected" "$code" "$said"
    fi
}

# refused TITLE EXPECTED COMMAND...: the command fails and prints what matches.
refused() {
    local title="$1" expected="$2" said code
    shift 2
    said="$("$@" 2>&1 </dev/null)"
    code=$?
    if [ "$code" != 0 ] && [[ "$said" =~ $expected ]]; then
        echo "ok kubectl $NAME: $title"
    else
        tell "$title" "a refusal: $expected" "$code" "$said"
    fi
}

tell() {
    failed=1
    echo "not ok kubectl $NAME: $1"
    echo "#   expected $2, exit code $3 and:"
    sed 's/^/#   /' <<<"$4" | head -20
}

piped() { k "$@" <<<"$INPUT"; }

fact "the server's version" 'Server Version: v1\.36' "$KUBECTL" version
fact "make a namespace" "namespace/$NAMESPACE created" "$KUBECTL" create namespace "$NAMESPACE"
fact "the resources that there are" 'deployments +deploy +apps/v1 +true +Deployment' "$KUBECTL" api-resources
fact "the versions that there are" 'apps/v1' "$KUBECTL" api-versions
fact "explain a field" 'FIELD:? *:? *replicas' "$KUBECTL" explain deployment.spec.replicas

fact "make a deployment" 'deployment.apps/web created' k create deployment web --image=web:1 --replicas=2
fact "read it as a table" 'web +0/2 +[0-2] +0' k get deployment web
fact "read it wide" 'web +0/2 +[0-2] +0 +[0-9a-z]+ +web +web:1 +app=web' k get deployment web -o wide
fact "read a field of it" '^2$' k get deployment web -o 'jsonpath={.spec.replicas}'
fact "read a column of it" 'web:1' k get deployment web -o custom-columns=IMAGE:.spec.template.spec.containers[0].image
fact "read it as YAML" 'kind: Deployment' k get deployment web -o yaml
fact "describe it" 'Replicas: +2 desired' k describe deployment web
fact "scale it" 'deployment.apps/web scaled' k scale deployment web --replicas=3
fact "set its image" 'deployment.apps/web image updated' k set image deployment/web web=web:2
fact "set its variables" 'deployment.apps/web env updated' k set env deployment/web COLOR=red
fact "set its resources" 'deployment.apps/web resource requirements updated' k set resources deployment web --limits=cpu=1
fact "restart it" 'deployment.apps/web restarted' k rollout restart deployment web
fact "edit it" 'deployment.apps/web edited' env KUBE_EDITOR='sed -i s/web:2/web:3/' "$KUBECTL" -n "$NAMESPACE" edit deployment web
fact "and it is so" '^3 web:3 red$' k get deployment web -o \
    'jsonpath={.spec.replicas} {.spec.template.spec.containers[0].image} {.spec.template.spec.containers[0].env[0].value}'
fact "expose it" 'service/web exposed' k expose deployment web --port=80
fact "read the service" 'web +ClusterIP +10\.' k get service web

for kind in strategic merge; do
    fact "patch: $kind" 'deployment.apps/web patched' k patch deployment web --type="$kind" -p "{\"metadata\":{\"annotations\":{\"by\":\"$kind\"}}}"
done
fact "patch: json" 'deployment.apps/web patched' k patch deployment web --type=json -p '[{"op":"test","path":"/metadata/annotations/by","value":"merge"},{"op":"remove","path":"/metadata/annotations/by"}]'
fact "label" 'deployment.apps/web labeled' k label deployment web tier=front
fact "label again is a fault" 'already has a value|not labeled' bash -c '"$0" -n "$1" label deployment web tier=back; [ $? = 1 ]' "$KUBECTL" "$NAMESPACE"
fact "annotate" 'deployment.apps/web annotated' k annotate deployment web note=x
fact "select by label" '^web$' k get deployments -l tier=front -o 'jsonpath={.items[*].metadata.name}'
fact "wait for what is so" 'deployment.apps/web condition met' k wait deployment/web --for='jsonpath={.spec.replicas}=3' --timeout=60s

export INPUT='
apiVersion: v1
kind: ConfigMap
metadata: {name: map}
data: {color: red}
---
apiVersion: v1
kind: Secret
metadata: {name: secret}
stringData: {word: hush}'
fact "apply two objects" 'configmap/map created.*secret/secret created' piped apply -f -
fact "apply them again" 'configmap/map unchanged' piped apply -f -
INPUT="${INPUT/red/blue}"
fact "what would change" '\+ +color: blue' bash -c '"$0" -n "$1" diff -f - <<<"$INPUT"; [ $? = 1 ]' "$KUBECTL" "$NAMESPACE"
fact "a dry run changes nothing" 'configmap/map configured \(server dry run\)' piped apply --dry-run=server -f -
fact "so it is still red" '^red$' k get configmap map -o 'jsonpath={.data.color}'
fact "apply at the server's side" 'configmap/map serverside-applied' piped apply --server-side --force-conflicts -f -
fact "and blue now" '^blue$' k get configmap map -o 'jsonpath={.data.color}'
fact "replace" 'configmap/map replaced' piped replace -f -
INPUT='
apiVersion: v1
kind: ConfigMap
metadata: {name: map}
dta: {color: red}'
refused "an unknown field is told" 'unknown field "dta"' piped apply --server-side=false --validate=strict -f -
refused "what is not there is told" 'configmaps "nothing" not found' k get configmap nothing
fact "delete" 'configmap "map" deleted' k delete configmap map

INPUT='
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: bells.'"$NAMESPACE"'.example.com}
spec:
  group: '"$NAMESPACE"'.example.com
  names: {plural: bells, singular: bell, kind: Bell, shortNames: [bl]}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns: [{name: Tone, type: string, jsonPath: .spec.tone}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            description: What it sounds like.
            properties: {tone: {type: string, enum: [low, high]}}'
fact "define a kind" 'customresourcedefinition.apiextensions.k8s.io/bells.* created' piped apply -f -
fact "wait until it is served" 'condition met' k wait --for=condition=Established "crd/bells.$NAMESPACE.example.com" --timeout=60s
INPUT='
apiVersion: '"$NAMESPACE"'.example.com/v1
kind: Bell
metadata: {name: ding}
spec: {tone: high}'
fact "make one" 'created' piped apply -f -
fact "its columns" 'ding +high' k get "bells.$NAMESPACE.example.com"
fact "its description" 'What it sounds like' k explain "bells.spec" "--api-version=$NAMESPACE.example.com/v1"
INPUT="${INPUT/high/odd}"
refused "its schema" 'Unsupported value: "odd": supported values: "low", "high"' piped apply -f -

fact "who am I" 'system:masters' "$KUBECTL" auth whoami
fact "what an administrator may" '^yes' k auth can-i delete deployments
fact "what a stranger may not" 'no' bash -c '"$0" -n "$1" auth can-i delete deployments --as=stranger; [ $? = 1 ]' "$KUBECTL" "$NAMESPACE"
fact "make a role" 'role.rbac.authorization.k8s.io/reader created' k create role reader --verb=get,list --resource=configmaps
fact "bind it" 'rolebinding.rbac.authorization.k8s.io/reader created' k create rolebinding reader --role=reader --user=stranger
fact "it holds" '^yes' k auth can-i list configmaps --as=stranger
fact "the list of what one may" 'configmaps +\[\] +\[\] +\[get list\]' k auth can-i --list --as=stranger
refused "and no more" 'User "stranger" cannot delete resource "configmaps"' k delete configmap any --as=stranger
fact "make an account" 'serviceaccount/robot created' k create serviceaccount robot
fact "its token" '^ey[A-Za-z0-9_-]+\.ey[A-Za-z0-9_-]+\.' k create token robot
fact "quota" 'resourcequota/few created' k create quota few --hard=pods=1
fact "events" '' k get events
fact "all that is deployed" 'deployment.apps/web' k get all
fact "delete by label" 'deployment.apps "web" deleted' k delete deployments -l tier=front
fact "delete the kind" 'deleted' "$KUBECTL" delete crd "bells.$NAMESPACE.example.com"
exit "$failed"

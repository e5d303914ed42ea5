{{/* The name of objects: outriderd, and -REVISION for another revision than the default one. */}}
{{- define "outrider.revision" -}}
{{ .Values.revision | default "default" }}
{{- end }}
{{- define "outrider.suffix" -}}
{{ with include "outrider.revision" . }}{{ if ne . "default" }}-{{ . }}{{ end }}{{ end }}
{{- end }}
{{- define "outrider.name" -}}
outriderd{{ include "outrider.suffix" . }}
{{- end }}

{{/* What selects the control plane's pods. Not istio.io/rev: it requests injection from others. */}}
{{- define "outrider.selector" -}}
app: outriderd
outrider.dev/revision: {{ include "outrider.revision" . | quote }}
{{- end }}

{{/* The labels of each object. */}}
{{- define "outrider.labels" -}}
{{ include "outrider.selector" . }}
app.kubernetes.io/name: outriderd
app.kubernetes.io/part-of: outrider
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* A name with a slash is a whole reference, as injection reads it. */}}
{{- define "outrider.image" -}}
{{- $p := .Values.pilot }}{{ $g := .Values.global }}
{{- if contains "/" $p.image }}{{ $p.image }}
{{- else }}{{ $p.hub | default $g.hub }}/{{ $p.image }}:{{ $p.tag | default $g.tag }}
{{- end }}
{{- end }}

{{/* Where the certificates are signed: "external", by global.caAddress; "secret", by a key that replicas share; "pod". */}}
{{- define "outrider.signer" -}}
{{- if .Values.global.caAddress }}external{{ else if .Values.authority.secretName }}secret{{ else }}pod{{ end }}
{{- end }}

{{/* auto, on or off, as with ownLabels. */}}
{{- define "outrider.trustBundle" -}}
{{- $mode := .Values.authority.trustBundle }}
{{- if kindIs "bool" $mode }}{{ ternary "on" "off" $mode }}{{ else }}{{ $mode }}{{ end }}
{{- end }}

{{/* Custom kinds that are not read: "hosts httproutes". */}}
{{- define "outrider.skipped" -}}
{{- $f := .Values.features }}
{{- if not $f.gatewayRoutes }}httproutes {{ end }}
{{- if not $f.policies }}peerauthentications authorizationpolicies {{ end }}
{{- if not $f.hosts }}hosts {{ end }}
{{- if not $f.backendPolicies }}backendpolicies {{ end }}
{{- if not $f.otherMeshes }}ignored {{ end }}
{{- end }}

{{/* auto, on or off; YAML reads on and off without quotes as true and false. */}}
{{- define "outrider.ownLabels" -}}
{{- $own := .Values.sidecarInjectorWebhook.ownLabels }}
{{- if kindIs "bool" $own }}{{ ternary "on" "off" $own }}{{ else }}{{ $own }}{{ end }}
{{- end }}

{{/* Settings of access logs, tracing and request metrics, unless all are off. */}}
{{- define "outrider.telemetry" -}}
{{- $mesh := pick .Values.meshConfig "accessLogFile" "accessLogFormat" "accessLogEncoding" "extensionProviders" "defaultProviders" }}
{{- with dig "tracing" dict (.Values.meshConfig.defaultConfig | default dict) }}{{ $mesh = set $mesh "tracing" . }}{{ end }}
{{- if include "outrider.metrics" . }}{{ $mesh = set $mesh "metrics" true }}{{ end }}
{{- with $mesh }}{{ toJson . }}{{ end }}
{{- end }}

{{/* Whether requests are counted. */}}
{{- define "outrider.metrics" -}}
{{- $t := .Values.telemetry }}
{{- if and $t.enabled $t.v2.enabled $t.v2.prometheus.enabled }}true{{ end }}
{{- end }}

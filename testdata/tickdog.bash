# bash completion for tickdog. Made from the help texts by TestDocs.
_tickdog() {
	local cur=${COMP_WORDS[COMP_CWORD]} at=tickdog word words=
	for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
		case "$at $word" in
		"tickdog gpu" | "tickdog agents" | "tickdog cycle" | "tickdog loop" | "tickdog loop action" | "tickdog loop failure" | "tickdog loop answered" | "tickdog loop wait" | "tickdog loop classify" | "tickdog loop show" | "tickdog loop list" | "tickdog loop thaw" | "tickdog loop halt" | "tickdog loop unhalt" | "tickdog loop prune" | "tickdog loop hook" | "tickdog status" | "tickdog doctor" | "tickdog pause" | "tickdog resume" | "tickdog thaw" | "tickdog replay" | "tickdog units" | "tickdog units print" | "tickdog units install" | "tickdog units remove") at="$at $word" ;;
		esac
	done
	case ${COMP_WORDS[COMP_CWORD-1]} in
	--config | --input) COMPREPLY=($(compgen -f -- "$cur")); return ;;
	esac
	case $at in
	"tickdog") words="gpu agents cycle loop status doctor pause resume thaw replay units --help --version" ;;
	"tickdog gpu") words="--dry-run --json --max-busy --hot-at --hot-checks --container --card --input --repeat --every --config --help" ;;
	"tickdog agents") words="--dry-run --json --verbose --config --help" ;;
	"tickdog cycle") words="--dry-run --json --config --help" ;;
	"tickdog loop") words="action failure answered wait classify show list thaw halt unhalt prune hook --help" ;;
	"tickdog loop action") words="--run --json --fingerprint --event --cycles --exit-code --config --help" ;;
	"tickdog loop failure") words="--run --code --subject --retry --retry-after --at-most --event --exit-code --status --header --body --exit --error --config --help" ;;
	"tickdog loop answered") words="--run --exit-code --config --help" ;;
	"tickdog loop wait") words="--run --exit-code --config --help" ;;
	"tickdog loop classify") words="--status --header --body --exit --error --config --help" ;;
	"tickdog loop show") words="--run --exit-code --config --help" ;;
	"tickdog loop list") words="--frozen --config --help" ;;
	"tickdog loop thaw") words="--run --why --exit-code --config --help" ;;
	"tickdog loop halt") words="--run --why --exit-code --config --help" ;;
	"tickdog loop unhalt") words="--run --exit-code --config --help" ;;
	"tickdog loop prune") words="--older --frozen-older --force --dry-run --config --help" ;;
	"tickdog loop hook") words="claude codex gemini generic --print-config --config --help" ;;
	"tickdog status") words="--json --config --help" ;;
	"tickdog doctor") words="gpu agents cycle --json --test-alert --config --help" ;;
	"tickdog pause") words="gpu agents --for --why --dry-run --config --help" ;;
	"tickdog resume") words="gpu agents --dry-run --config --help" ;;
	"tickdog thaw") words="--dry-run --config --help" ;;
	"tickdog replay") words="--max-busy --hot-at --hot-checks --card --gate --busy-cap --json --no-picture --config --help" ;;
	"tickdog units") words="print install remove --help" ;;
	"tickdog units print") words="gpu agents cycle --config --help" ;;
	"tickdog units install") words="gpu agents cycle --dry-run --force --config --help" ;;
	"tickdog units remove") words="gpu agents cycle --dry-run --config --help" ;;
	esac
	COMPREPLY=($(compgen -W "$words" -- "$cur"))
	[ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- "$cur"))
}
complete -o filenames -F _tickdog tickdog

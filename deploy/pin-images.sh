#!/bin/sh
# Pins the images of compose.yaml and the Dockerfile that have no digest yet to the one their registry has for their version.
#   sh deploy/pin-images.sh
# To raise an image: write its new version without a digest and run this. In compose.yaml "# no digest: WHY" must follow
# the version; in the Dockerfile nothing may, because a line with FROM can have no comment.
set -eu
folder=$(dirname "$0")

unpinned() {
    sed -n 's/^ *image: *\([^ @]*\) # no digest:.*/\1/p' "$folder/compose.yaml"
    sed -n 's/^FROM \([^ @]*:[^ @]*\)\( .*\)\{0,1\}$/\1/p' "$folder/Dockerfile"
}

for image in $(unpinned | sort -u); do
    digest=$(docker buildx imagetools inspect "$image" --format '{{.Manifest.Digest}}')
    if ! printf '%s\n' "$digest" | grep -qx 'sha256:[0-9a-f]\{64\}'; then
        echo "$image: the registry gave no digest: $digest" >&2
        exit 1
    fi
    for file in "$folder/compose.yaml" "$folder/Dockerfile"; do
        sed -e "s|^\( *image: *$image\) # no digest:.*|\1@$digest|" -e "s|^\(FROM $image\)\( .*\)\{0,1\}\$|\1@$digest\2|" \
            "$file" > "$file.new"
        cat "$file.new" > "$file"
        rm "$file.new"
    done
    echo "$image@$digest"
done

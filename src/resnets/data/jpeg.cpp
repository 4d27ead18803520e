// Decode a part of a JPEG with libjpeg: columns beside it are skipped, rows below it are not read.

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include <jpeglib.h>

namespace {

constexpr int MARGIN = 16, LINES = 4;

struct Errors {
    jpeg_error_mgr manager;  // must be first: libjpeg has its address
    std::jmp_buf back;
};

void leave(j_common_ptr image) {
    std::longjmp(reinterpret_cast<Errors*>(image->err)->back, 1);
}

void handle_message(j_common_ptr image, int level) {
    if (level < 0) leave(image);  // a warning: the file is broken, so let PIL decode it
}

void quiet(j_common_ptr) {}

void prepare(jpeg_decompress_struct& image, Errors& errors) {
    std::memset(&image, 0, sizeof image);  // so that it can be destroyed even if it was never created
    image.err = jpeg_std_error(&errors.manager);
    errors.manager.error_exit = leave;
    errors.manager.emit_message = handle_message;
    errors.manager.output_message = quiet;
}

// Run `body` on the image; returns false if libjpeg reports an error or a warning.
template <typename Body>
bool with_picture(const uint8_t* data, std::size_t bytes, Body body) {
    jpeg_decompress_struct image;
    Errors errors;
    prepare(image, errors);
    if (setjmp(errors.back)) {
        jpeg_destroy_decompress(&image);
        return false;
    }
    jpeg_create_decompress(&image);
    jpeg_mem_src(&image, const_cast<uint8_t*>(data), static_cast<unsigned long>(bytes));
    const bool done = body(image);
    jpeg_destroy_decompress(&image);
    return done;
}

bool usual(const jpeg_decompress_struct& image) {
    return image.jpeg_color_space == JCS_YCbCr || image.jpeg_color_space == JCS_GRAYSCALE;
}

}  // namespace

// The size of an ordinary image: one that libjpeg converts to RGB, and without EXIF, which may ask to turn it.
// Returns whether it is one.
extern "C" int jpeg_size(const uint8_t* data, std::size_t bytes, int* width, int* height) {
    return with_picture(data, bytes, [=](jpeg_decompress_struct& image) {
        jpeg_save_markers(&image, JPEG_APP0 + 1, 4);
        jpeg_read_header(&image, TRUE);
        *width = static_cast<int>(image.image_width);
        *height = static_cast<int>(image.image_height);
        for (jpeg_saved_marker_ptr marker = image.marker_list; marker; marker = marker->next)
            if (marker->data_length >= 4 && std::memcmp(marker->data, "Exif", 4) == 0) return false;
        return usual(image);
    });
}

// Decode width x height pixels from (left, top), in RGB, of the image reduced by 1, 2, 4 or 8, which then has
// wide x high pixels. Returns whether that worked.
extern "C" int jpeg_part(const uint8_t* data, std::size_t bytes, int shrink, int wide, int high, int left, int top,
                         int width, int height, uint8_t* out) {
    if (left < 0 || top < 0 || width <= 0 || height <= 0 || width > wide - left || height > high - top) return 0;
    return with_picture(data, bytes, [=](jpeg_decompress_struct& image) {
        jpeg_read_header(&image, TRUE);
        if (!usual(image)) return false;
        image.out_color_space = JCS_RGB;
        image.scale_num = 1;
        image.scale_denom = static_cast<unsigned>(shrink);
        jpeg_start_decompress(&image);
        if (static_cast<int>(image.output_width) != wide || static_cast<int>(image.output_height) != high) return false;
        // Colours are interpolated from neighbours: one more block on each side gives the same edges as the whole image.
        JDIMENSION from = static_cast<JDIMENSION>(left > MARGIN ? left - MARGIN : 0);
        JDIMENSION columns = static_cast<JDIMENSION>(wide - left - width > MARGIN ? left + width + MARGIN : wide) - from;
        jpeg_crop_scanline(&image, &from, &columns);  // moves `from` to the left, to where a block begins
        const std::size_t before = 3 * (static_cast<std::size_t>(left) - from), row = 3 * static_cast<std::size_t>(width);
        JSAMPARRAY lines =
            (*image.mem->alloc_sarray)(reinterpret_cast<j_common_ptr>(&image), JPOOL_IMAGE, 3 * columns, LINES);
        if (top > 0) jpeg_skip_scanlines(&image, static_cast<JDIMENSION>(top));
        for (int y = 0; y < height;) {
            const int some = static_cast<int>(jpeg_read_scanlines(&image, lines, LINES));
            for (int i = 0; i < some && y < height; i++, y++) std::memcpy(out + y * row, lines[i] + before, row);
        }
        return true;
    });
}
